"""The demo's last part: its own recording goes through health and the lab, with the commands that anybody would use."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from headway.core.base import ConfigError
from headway.pipeline.java import check_java
from headway.server.loop import called_as

CANDIDATES = Path(__file__).with_name("candidates.toml")
NEEDED = ("pyspark", "pyarrow", "plotly")


class Results:
    """Where everything goes: ``lake``, ``health`` and ``lab`` in one folder, which a demo before may have left."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lake, self.health, self.lab = folder / "lake", folder / "health", folder / "lab"

    def clear(self) -> None:
        """Only what a demo makes is removed."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for made in (self.lake, self.health, self.lab):
            shutil.rmtree(made, ignore_errors=True)


def hindrance() -> str | None:
    """Names what the analysis lacks, and the command that installs it; None: nothing."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        return f"{' and '.join(missing)} not installed; make demo installs it"
    try:
        check_java()
    except ConfigError as error:
        return str(error)
    return None


def analyse(console: Console, results: Results, ran: str) -> bool:
    """Run health and the lab over the recording and show what is recommended beside what ran (its TOML). False when one
    of them failed; it has said why."""
    console.print()
    console.print("[bold]What the recording says[/bold] (the broker wrote it down; Spark reads it)")
    if not _run(console, "pipeline", "health", "--lake", str(results.lake), "--out", str(results.health)):
        return False
    results.lab.mkdir(exist_ok=True)
    candidates = results.lab / "candidates.toml"
    candidates.write_text(CANDIDATES.read_text(encoding="utf-8"))
    console.print()
    console.print("[bold]What other policies would have done[/bold]")
    if not _run(
        console, "lab", "run", "--lake", str(results.lake), "--candidates", str(candidates), "--out", str(results.lab)
    ):
        return False
    recommended = results.lab / "recommended.toml"
    console.print()
    beside = Table.grid(padding=(0, 1), expand=True)
    for _ in range(2):
        beside.add_column(ratio=1)
    beside.add_row(_policy("as it ran", ran), _policy("recommended", recommended.read_text(encoding="utf-8")))
    console.print(beside)
    console.print(Text(f"Look at {results.health / 'report.html'} and {results.lab / 'report.html'}."))
    return True


def _run(console: Console, *words: str) -> bool:
    command = [*called_as(), *words]
    console.print(Text(f"$ {shlex.join(command)}", style="dim"), soft_wrap=True)
    return subprocess.run(command, check=False).returncode == 0


def _policy(title: str, text: str) -> Panel:
    return Panel(Text("\n".join(policy_lines(text.splitlines())) or "no policy"), title=title)


def policy_lines(lines: Sequence[str]) -> list[str]:
    """The [[policy]] tables of a config, without comments and blank lines."""
    kept: list[str] = []
    within = False
    for line in lines:
        if line.startswith("["):
            within = line.startswith("[[policy")
        if within and line.strip() and not line.lstrip().startswith("#"):
            kept.append(line)
    return kept
