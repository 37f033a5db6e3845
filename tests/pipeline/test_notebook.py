"""The notebook in docs/ is run as a reader would, cell by cell, and comes to the answers that it shows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

CHECKOUT = Path(__file__).parent.parent.parent
TIMEOUT_S = 300


def shown(notebook: Any) -> list[str]:
    """What the cells come to, as text."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return [str(output.data["text/plain"]) for output in outputs if output.output_type == "execute_result"]


def test_it_comes_to_what_it_shows(tmp_path: Path) -> None:
    kept = nbformat.read(CHECKOUT / "docs" / "topic-to-answer.ipynb", as_version=4)
    run = nbformat.from_dict(kept)
    # As in a shell of its own: the Spark session of other tests may be open in this process.
    env = {name: value for name, value in os.environ.items() if "SPARK" not in name} | {"PYTHONPATH": str(CHECKOUT)}
    NotebookClient(run, timeout=TIMEOUT_S, resources={"metadata": {"path": str(tmp_path)}}).execute(env=env)
    before, now = shown(kept), shown(run)
    assert len(now) == len(before) > 4
    assert now[:-1] == before[:-1]  # the last one has the name of a cursor in it
    assert "'flights/#', 0)" in now[-1]
