"""Errors in the SQL of a view, in one line."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.errors import PySparkException

from headway.pipeline.error_text import error_text


def sql_error(error: PySparkException, columns: Mapping[str, list[str]]) -> str:
    """Words an error in the SQL of a view; ``columns``: by table, of those that it reads."""
    kind, said = error.getCondition() or "", error.getMessageParameters() or {}
    if kind.startswith("UNRESOLVED_COLUMN"):
        known = "; ".join(f"those of {table} are {', '.join(names)}" for table, names in columns.items())
        return f"there is no column {said.get('objectName', '').replace('`', '')}: {known}"
    if said.get("operation") == "streaming aggregations without watermark":
        tables = " or ".join(f"[tables.{table}]" for table in columns)
        return (
            'with mode = "append" a group is published when no more can come, and nothing says when that is: give '
            f'{tables} a watermark = "10s", or so, and group by window(timestamp, ...), or take mode = "update"'
        )
    return error_text(error)
