"""Sessions: quiet, alone, and gone afterwards. Those that start Spark do it in a process of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from headway.core.base.errors import ConfigError
from headway.pipeline import java
from headway.pipeline.java import check_java
from headway.pipeline.session import open_session

OPEN = """
    import os, signal, sys
    from pathlib import Path
    from headway.pipeline.session import open_session
    signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it would be ignored
    def jvms():
        mine = f"/proc/{os.getpid()}/task/{os.getpid()}/children"
        return [pid for pid in Path(mine).read_text().split() if "java" in Path(f"/proc/{pid}/cmdline").read_text()]
"""


def run(code: str, tmp_path: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the code with ``OPEN`` in front of it; temporary files go to ``tmp_path``."""
    source = textwrap.dedent(OPEN) + textwrap.dedent(code)
    return subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=False,
        env={**os.environ, "TMPDIR": str(tmp_path), **env},
    )  # fmt: skip


def test_a_session_says_nothing_leaves_nothing_and_can_be_opened_again(tmp_path: Path) -> None:
    """The first ends with an error, the second with Ctrl-C, the third is terminated."""
    done = run(
        """
        try:
            with open_session("one", master="local[1]") as spark:
                print(spark.range(100).selectExpr("sum(id)").collect()[0][0], len(jvms()))
                spark.sql("SELECT * FROM nowhere").collect()
        except Exception as error:
            print(type(error).__name__, len(jvms()))
        try:
            with open_session("two", master="local[1]") as spark:
                print(spark.range(100).selectExpr("max(id)").collect()[0][0], len(jvms()))
                signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            print("interrupted", len(jvms()))
        try:
            with open_session("three", master="local[1]") as spark:
                signal.raise_signal(signal.SIGTERM)
        except SystemExit as end:
            print("terminated", end.code, len(jvms()))
        """,
        tmp_path,
        SPARK_HOME="/nowhere",
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "4950 1", "AnalysisException 0", "99 1", "interrupted 0", "terminated 143 0"
    ]  # fmt: skip
    assert list(tmp_path.iterdir()) == []


def test_the_jvm_ends_with_the_process_however_that_ends(tmp_path: Path) -> None:
    """Both are gone once the pipe that both hold open is closed."""
    read, write = os.pipe()
    code = textwrap.dedent(OPEN) + 'with open_session("x", master="local[1]"): os.kill(os.getpid(), signal.SIGKILL)'
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], pass_fds=[write], env=env, check=False)
    assert done.returncode == -signal.SIGKILL
    os.close(write)
    assert os.read(read, 1) == b""
    os.close(read)


def test_a_master_that_cannot_be_is_one_line(tmp_path: Path) -> None:
    done = run(
        """
        from headway.core.base import ConfigError
        try:
            with open_session("one", master="yarnn"):
                pass
        except ConfigError as error:
            print(error)
        """,
        tmp_path,
    )
    assert done.stdout.startswith("Spark did not start on yarnn: ")
    assert "yarnn" in done.stdout.partition(": ")[2]
    assert (done.stdout.count("\n"), done.stderr) == (1, "")


def test_memory_must_be_a_size() -> None:
    with pytest.raises(ConfigError, match="'lots' is no size"), open_session("x", conf={"spark.driver.memory": "lots"}):
        pass


# Java


def fake_java(folder: Path, version: str) -> Path:
    """A ``java`` that says it is of this version, in FOLDER/bin."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{version}' >&2\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("version", "told"),
    [
        ('openjdk version "17.0.15" 2025-04-15', None),
        ('openjdk version "21" 2023-09-19', None),
        ('openjdk version "11.0.27" 2025-04-15', "which is Java 11: "),
        ('java version "1.8.0_412"', "which is Java 8: "),
        ("Segmentation fault", "but no Java runs there: "),
    ],
)
def test_java_must_be_new_enough(version: str, told: str | None, tmp_path: Path, monkeypatch: Any) -> None:
    program = fake_java(tmp_path / "jdk", version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    if told is None:
        assert check_java() == program
        return
    with pytest.raises(ConfigError) as caught:
        check_java()
    assert str(caught.value) == (
        f"Spark needs Java 17 or newer; JAVA_HOME is {tmp_path / 'jdk'}, {told}{java.install_command()}"
    )


def test_without_java_home_it_is_the_one_in_the_path(tmp_path: Path, monkeypatch: Any) -> None:
    program = fake_java(tmp_path / "jdk", 'openjdk version "18"')
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(program.parent))
    assert check_java() == program
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="there is none here: "):
        check_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(ConfigError, match="no Java runs there"):
        check_java()


def test_the_command_that_helps_is_this_systems(monkeypatch: Any) -> None:
    there = {"apt-get"}
    monkeypatch.setattr(java.shutil, "which", lambda name: name if name in there else None)
    monkeypatch.setattr(java.os, "geteuid", lambda: 1000)
    for system, package in [
        ({"ID": "debian", "VERSION_ID": "12"}, "17"),
        ({"ID": "debian", "VERSION_ID": "13"}, "21"),
        ({"ID": "ubuntu", "VERSION_ID": "24.04"}, "21"),
    ]:
        monkeypatch.setattr(java.platform, "freedesktop_os_release", lambda system=system: system)
        assert java.install_command() == f"sudo apt-get install -y openjdk-{package}-jre-headless"
    there = {"dnf"}
    assert java.install_command() == "sudo dnf install -y java-21-openjdk-headless"
