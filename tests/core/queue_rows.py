"""Helpers of the tests of the rows over queues."""

from __future__ import annotations

from tests.core.queues_stage import Peer

from headway.core.base.errors import Reason

KB, MB = 1000, 1_000_000


ALL_SLOW = """
[[policy]]
name = "all slow"

[[policy.rule]]
when = { blocked_time = "2s" }
then = %s
"""


def assert_told_why(peer: Peer, reason: Reason, *words: str) -> None:
    assert not peer.connected
    assert peer.goodbye is not None
    assert peer.goodbye.reason is reason
    for word in words:
        assert word in peer.goodbye.text
