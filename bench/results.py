"""Results of a run of the bench: one JSON document with every round's raw figures.

    {"schema": 1, "date": "2026-01-31T12:00:00+00:00", "arguments": [...], "rounds": 3, "seconds": 3.0, "tiny": false,
     "machine": {...}, "versions": {peer: text}, "settings": {peer: text}, "missing": {peer: install command},
     "runs": [{"workload", "case", "values", "peer", "round", "figures": {...}}  or  {..., "error": text}]}
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.errors import BenchError

SCHEMA = 1
FIELDS = {
    "schema", "date", "arguments", "rounds", "seconds", "tiny", "machine", "versions", "settings", "missing", "runs",
}  # fmt: skip
RUN_FIELDS = {"workload", "case", "values", "peer", "round"}

Document = dict[str, Any]
Run = dict[str, Any]


def load(path: Path) -> Document:
    """Reads a document. Raises BenchError, one line, when it is not such a document."""
    try:
        document: Document = json.loads(path.read_text())
    except OSError as error:
        raise BenchError(f"{path}: {error.strerror}") from None
    except ValueError:
        raise BenchError(f"{path} is not JSON") from None
    check(document, str(path))
    return document


def check(document: Any, name: str = "results") -> None:
    """Raises BenchError with what is wrong with it."""
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise BenchError(f"{name} is not a result of this bench (schema {SCHEMA})")
    if missing := FIELDS - document.keys():
        raise BenchError(f"{name} has no {', '.join(sorted(missing))}")
    for run in document["runs"]:
        if missing := RUN_FIELDS - run.keys():
            raise BenchError(f"{name}: a run has no {', '.join(sorted(missing))}")
        if ("figures" in run) == ("error" in run):
            raise BenchError(f"{name}: a run has either figures or an error")


def save(document: Document, path: Path) -> None:
    """Writes the document whole."""
    check(document)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(document, indent=1) + "\n")
    partial.replace(path)


def merge(first: Document, second: Document) -> Document:
    """Merges two documents of the same bench: the workloads of both."""
    versions = first["versions"] | second["versions"]
    return first | {"versions": versions, "runs": first["runs"] + second["runs"]}


def figures_of(document: Document, workload: str, case: str, peer: str) -> list[dict[str, Any]]:
    """Returns one dict per round that succeeded."""
    return [run["figures"] for run in matching(document, workload, case, peer) if "figures" in run]


def matching(document: Document, workload: str, case: str, peer: str) -> Iterator[Run]:
    for run in document["runs"]:
        if (run["workload"], run["case"], run["peer"]) == (workload, case, peer):
            yield run
