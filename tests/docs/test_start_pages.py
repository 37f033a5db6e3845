"""Every command on the pages of docs/start runs as it stands there, and prints what the page says.

The pages use the broker's default ports, so each runs in a network of its own, where the machine allows that.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from tests.docs.page import FILES, blocks
from tests.docs.told import TELL
from tests.interop.view_stage import CHROMIUM
from tests.java import PLAIN

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "start").glob("*.md"))
LIMIT_S = 300
BEGIN = "set -eu; trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT"
OWN_NETWORK = ["unshare", "--map-root-user", "--net", "--", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
OPEN = """
until {python} -c 'import urllib.request as r; r.urlopen("{url}")' 2>/dev/null; do sleep 0.1; done
{chromium} --headless --no-sandbox --disable-gpu --user-data-dir=browser '{url}' >/dev/null 2>&1 &
timeout 120 {python} -m tests.docs.told '{last}'
"""


def network() -> list[str]:
    possible = shutil.which("unshare") and shutil.which("ip")
    own = possible and subprocess.run([*OWN_NETWORK, "true"], capture_output=True, check=False).returncode == 0
    return OWN_NETWORK if own else []


def run(script: str, folder: Path) -> str:
    """Runs it to its end. Whatever it has started ends with it."""
    path = os.pathsep.join(("/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"))
    env = {"HOME": str(folder), "PATH": path, "LANG": "C.UTF-8", "COLUMNS": "120"}
    env |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(ROOT), "JDK_JAVA_OPTIONS": PLAIN}
    with subprocess.Popen(
        [*network(), "bash", "-c", script], cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, start_new_session=True,
    ) as shell:  # fmt: skip
        try:
            said, _ = shell.communicate(timeout=LIMIT_S)
        finally:
            with suppress(ProcessLookupError):  # a browser outlives the shell that has started it
                os.killpg(shell.pid, signal.SIGKILL)
    assert shell.returncode == 0, said
    return said


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_the_page_says_is_what_happens(page: Path, tmp_path: Path) -> None:
    (tmp_path / ".venv").symlink_to(sys.prefix)
    script, expected = [BEGIN], []
    for block in blocks(page):
        if block.kind in FILES:
            told = TELL if block.kind == "html" else ""
            (tmp_path / block.file).write_text(block.text + told, encoding="utf-8")
        elif block.kind == "sh":
            script.append(block.text)
        elif block.kind == "text":
            if block.opened:
                words = {"url": block.opened, "last": block.text.splitlines()[-1], "python": sys.executable}
                script.append(OPEN.format(chromium=CHROMIUM, **words))
            expected += block.text.splitlines()
    said = run("\n".join(script), tmp_path)
    at = 0
    for line in expected:
        found = said.find(line, at)
        assert found >= 0, f"{page.name} says {line!r}, and so it did not come:\n{said[at:]}"
        at = found + len(line)
    assert len(script) > 1


def test_the_start_page_leads_to_each_of_them() -> None:
    start = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    assert len(PAGES) == 6
    assert [page.name for page in PAGES if f"(start/{page.name})" not in start] == []
