"""Labels: what is true of a consumer, whatever a policy says of it.

A consumer is healthy except in its *spells* of trouble. Each spell has a beginning (the onset), an end unless it lasts,
and a true cause. Times are seconds since 1970.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from math import inf
from typing import Any

NETWORK = "network"
OVER_SUBSCRIPTION = "over_subscription"
PRODUCER_BURST = "producer_burst"
READS_NOTHING = "application_reads_nothing"
READS_TOO_SLOWLY = "application_reads_too_slowly"
ACKNOWLEDGES_NOTHING = "application_acknowledges_nothing"

COARSE = {
    NETWORK: NETWORK, OVER_SUBSCRIPTION: OVER_SUBSCRIPTION, PRODUCER_BURST: PRODUCER_BURST,
    READS_NOTHING: "application", READS_TOO_SLOWLY: "application", ACKNOWLEDGES_NOTHING: "application",
}  # fmt: skip
"""The word of the broker for each true cause."""


@dataclass
class Spell:
    """A time of trouble."""

    start_s: float
    cause: str
    end_s: float = inf


@dataclass
class Label:
    """One consumer of the set. ``filter`` tells it from others of the same client; empty: it is the only one."""

    kind: str
    client: str
    protocol: str
    filter: str = ""
    stuck: bool = False
    """The consumer takes nothing at all, so how soon it is found counts."""
    spells: list[Spell] = field(default_factory=list)
    began_s: float = 0.0

    def trouble(self, cause: str) -> None:
        """Says that trouble begins now."""
        assert cause in COARSE
        self.spells.append(Spell(time.time(), cause))

    def well(self) -> None:
        """Says that the trouble is over now."""
        self.spells[-1].end_s = time.time()

    @property
    def troubled(self) -> bool:
        return bool(self.spells)


def to_json(label: Label) -> dict[str, Any]:
    return {
        "kind": label.kind, "client": label.client, "protocol": label.protocol, "filter": label.filter,
        "stuck": label.stuck, "began_s": label.began_s,
        "spells": [
            {"start_s": one.start_s, "cause": one.cause, "end_s": None if one.end_s == inf else one.end_s}
            for one in label.spells
        ],
    }  # fmt: skip
