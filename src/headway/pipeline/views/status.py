"""The status of a view: what Spark says of its batches, added up since the command was started."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headway.pipeline.views.publish import ROWS
from headway.server.config import ViewTable

STARTING, RUNNING, ENDED = "starting", "running", "ended"


@dataclass
class Status:
    name: str
    view: ViewTable
    state: str = STARTING
    records: int = 0
    """Records read."""
    published: int = 0
    batches: int = 0
    batch_ms: int = 0
    """Duration of the last batch."""
    late: int = 0
    """Rows left out of groups that the watermark had closed."""
    behind: int = 0
    """Offsets between what was read and what there is; those of other topics count, too."""
    misfits: int = 0
    """Misfits left out."""
    last_misfit: str = ""
    deletes: int = 0
    """Deletes left out."""
    error: str = ""
    """The error that ended it."""
    _seen: int = -1

    def end(self, error: str) -> None:
        self.state, self.error = ENDED, error

    def add(self, progress: Mapping[str, Any]) -> None:
        """Adds a batch, as Spark reports it, unless it was added already. While there is nothing to do Spark reports,
        too, under the number of the next batch: nothing was observed then."""
        if progress["batchId"] <= self._seen:
            return
        if not progress["observedMetrics"]:
            self.state = RUNNING
            return
        self._seen = progress["batchId"]
        self.state = RUNNING
        self.batches += 1
        self.batch_ms = int((progress["durationMs"] or {}).get("triggerExecution", 0))
        self.records += sum(int(source["numInputRows"]) for source in progress["sources"])
        self.late += sum(int(operator["numRowsDroppedByWatermark"]) for operator in progress["stateOperators"])
        self.behind = sum(_behind(source) for source in progress["sources"])
        for name, observed in progress["observedMetrics"].items():
            count, *more = observed["values"]
            if name == ROWS:
                self.published += count
                continue
            last, deletes = more
            self.deletes += deletes
            if count:
                self.misfits += count
                self.last_misfit = last


def _behind(source: Mapping[str, Any]) -> int:
    try:
        end, latest = (json.loads(source[name])["offset"] for name in ("endOffset", "latestOffset"))
        return max(0, int(latest) - int(end))
    except (ValueError, TypeError, KeyError):
        return 0
