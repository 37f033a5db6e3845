"""The manifest of a view, beside Spark's checkpoint: the checkpoint's state holds for this definition only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from pyspark.sql.types import StructType

from headway.core.base import ConfigError
from headway.pipeline.views.schema import differences
from headway.server.config import ViewTable
from headway.store.atomic_write import atomic_write

FILE = "view.json"
CHECKPOINT = "checkpoint"


class TableShape(NamedTuple):
    topic: str
    schema: StructType


class ViewManifest(NamedTuple):
    sql: str
    mode: str
    topic: str
    tables: dict[str, TableShape]
    writer: str
    """The name under which its batches are published, each once."""

    @classmethod
    def of(cls, view: ViewTable, tables: Mapping[str, TableShape], writer: str) -> ViewManifest:
        """Makes a view's manifest; blanks in its SQL do not count."""
        return cls(" ".join(view.sql.split()), view.mode, view.topic, dict(tables), writer)

    def schemas(self) -> dict[str, StructType]:
        return {name: table.schema for name, table in self.tables.items()}


def read_manifest(folder: Path) -> ViewManifest | None:
    """None where nothing was worked out yet. Raises ConfigError."""
    if not any((folder / CHECKPOINT / "offsets").glob("[0-9]*")):
        return None
    try:
        found = json.loads((folder / FILE).read_text())
        tables = {
            name: TableShape(table["topic"], StructType.fromJson(table["schema"]))
            for name, table in found["tables"].items()
        }
        return ViewManifest(found["sql"], found["mode"], found["topic"], tables, found["writer"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(f"{folder / FILE} is not what a run wrote; {anew(folder)}") from None


def write_manifest(folder: Path, manifest: ViewManifest) -> None:
    tables = {name: {"topic": one.topic, "schema": one.schema.jsonValue()} for name, one in manifest.tables.items()}
    with atomic_write(folder / FILE) as partial:
        partial.write_text(json.dumps(manifest._asdict() | {"tables": tables}, indent=2) + "\n")


def check_manifest(folder: Path, before: ViewManifest, now: ViewManifest) -> None:
    """Raises ConfigError where what was worked out does not hold for what is wanted now."""
    words = ("sql", "mode", "topic")
    changes = [f"its {word} was changed" for word in words if getattr(before, word) != getattr(now, word)]
    for name, table in now.tables.items():
        old = before.tables.get(name, table)
        if old.topic != table.topic:
            changes.append(f"table {name} was {old.topic} and is {table.topic} now")
        changes += [f"table {name}: {text}" for text in differences(old.schema, table.schema)]
    if changes:
        raise ConfigError(f"{', '.join(changes)}; put that back, or {anew(folder)}")


def anew(folder: Path) -> str:
    return f"begin anew: remove {folder}"
