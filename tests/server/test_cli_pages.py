"""The man page and the completion: both made from the commands themselves, and taken by the programs they are for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.server.canned import Ran

from headway import __version__

COMMANDS = ["serve", "check", "doctor", "top", "why", "journal show", "journal verify", "pipeline views", "lab"]


def test_the_man_page_has_every_command_and_troff_takes_it() -> None:
    ran = Ran("man")
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[0] == f'.TH HEADWAY 1 "" "Headway {__version__}" "User Commands"'
    assert [line for line in lines if line.startswith(".SH")] == [
        f".SH {name}" for name in ("NAME", "SYNOPSIS", "DESCRIPTION", "COMMANDS", "ENVIRONMENT")
    ]
    for command in COMMANDS:
        assert any(line.startswith(f".SS headway {command}") for line in lines), command
    assert not any(line.startswith(".SS headway demo") for line in lines)  # it is not installed
    troff = shutil.which("groff")
    if troff is None:
        pytest.skip("there is no groff to read it")
    read = subprocess.run([troff, "-man", "-Tutf8", "-ww"], input=ran.out, capture_output=True, text=True, check=True)
    assert read.stderr == ""
    assert "headway serve --print-config >headway.toml" in read.stdout
    assert "pass show broker/alice | headway passwd alice >>users.toml" in read.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_for_every_shell(shell: str) -> None:
    ran = Ran("completion", shell)
    assert ran.code == 0
    assert f"_HEADWAY_COMPLETE=complete_{shell}" in ran.out
    assert Ran("completion", "tcsh").code == 2


def test_bash_completes(tmp_path: Path) -> None:
    (tmp_path / "completion").write_text(Ran("completion", "bash").out)
    script = (
        f'source {tmp_path}/completion\nCOMP_WORDS=(headway "$1" "$2"); COMP_CWORD=$3\n'
        '_headway_completion headway; echo "${COMPREPLY[*]}"'
    )
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    def completed(*words: str) -> str:
        ran = subprocess.run(
            ["bash", "-c", script, "bash", *words], env=os.environ | {"PATH": path}, capture_output=True, text=True,
            check=True,
        )  # fmt: skip
        return ran.stdout.strip()

    assert completed("doc", "", "1") == "doctor"
    assert "--print-config" in completed("serve", "--pri", "2")
