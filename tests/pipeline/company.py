"""Who takes part in the truth test, and the two policies: the one that is recorded, and the one that is foretold."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from tests.pipeline.traffic import Part

SECONDS = 14.0
RECORDS_PER_S = 100
PAYLOAD_BYTES = 2_000
TOPICS = {"cut/x": 0, "trim/x": 0, "merge/x": 0, "late/x": 1}
"""And the QoS their records are published with."""


def until(stop: float, then: float = 0.0, again: float = inf) -> Callable[[float], float]:
    """Everything, but from ``stop`` to ``again`` only so many bytes a second."""
    return lambda at: then if stop <= at < again else inf


PARTS = (
    # Cut when blocked for too long.
    Part("cut-healthy", "cut/x"),
    Part("cut-stuck", "cut/x", until(3.0)),
    Part("cut-stuck-later", "cut/x", until(6.0)),
    Part("cut-pauses", "cut/x", until(4.0, again=5.5)),
    Part("cut-trickles", "cut/x", lambda _: 60_000.0),
    # The oldest is discarded when too much waits.
    Part("trim-healthy", "trim/x"),
    Part("trim-stuck", "trim/x", until(4.0)),
    Part("trim-slow", "trim/x", lambda _: 100_000.0),
    Part("trim-barely", "trim/x", lambda _: 190_000.0),
    # Conflated when what waits is too old.
    Part("merge-healthy", "merge/x"),
    Part("merge-slow", "merge/x", lambda _: 120_000.0),
    Part("merge-pauses", "merge/x", until(5.0, again=6.0)),
    # Cut when nothing is acknowledged for too long.
    Part("late-healthy", "late/x", qos=1, receive_max=50),
    Part("late-stuck", "late/x", qos=1, receive_max=50, acks=lambda at: at < 5.0),
    Part("late-pauses", "late/x", qos=1, receive_max=50, acks=lambda at: not 6.0 <= at < 7.0),
)

RECORDED = """
[[policy]]
name = "watch only"
[[policy.rule]]
when = { lag_age = "1s" }
then = "notify"
"""

FORETOLD = """
[[policy]]
name = "cut"
topics = ["cut/#"]
[[policy.rule]]
when = { blocked_time = "2500ms" }
then = "disconnect"

[[policy]]
name = "trim"
topics = ["trim/#"]
[[policy.rule]]
when = { lag_bytes = "300kB" }
then = { action = "discard", which = "oldest", keep_records = 20 }

[[policy]]
name = "merge"
topics = ["merge/#"]
[[policy.rule]]
when = { lag_age = "1500ms" }
for = "500ms"
then = "conflate"

[[policy]]
name = "late"
topics = ["late/#"]
[[policy.rule]]
when = { credit_exhausted_time = "2s" }
then = "disconnect"
"""
