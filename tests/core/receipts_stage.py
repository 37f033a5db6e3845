"""What tests of receipts share: they ask for receipts, and read them."""

from __future__ import annotations

from typing import Any

from tests.core.queues_stage import QueueStage
from tests.core.stage import Client, Stage

from headway.core.log import NO_RECEIPTS

FATES = ("got", "conflated", "discarded", "dead_lettered", "lost", "waiting")
POLICY = """
[[topic]]
filter = "t/#"
key = "topic"
[[policy]]
name = "p"
[[policy.rule]]
when = { lag_records = "> 2" }
then = %s
"""
"""Whoever is more than two records behind."""


def receipts(stage: Stage, client: str = "p") -> list[dict[str, Any]]:
    told = stage.told("receipt", client)
    for one in told:
        assert one["owed"] == sum(one[fate] for fate in FATES), one
        assert sum(one["why"].values()) == one["conflated"] + one["discarded"] + one["dead_lettered"] + one["lost"]
    return told


def only(stage: Stage, **expected: object) -> dict[str, Any]:
    """The one receipt there is; what is not expected otherwise is 0."""
    (told,) = receipts(stage)
    seen = {name: told[name] for name in ("state", "owed", *FATES, "why") if told[name]}
    assert seen == {"state": "complete", **expected}
    return told


def asks(stage: Stage, topic: str = "t", number: int = 0, receipt: str = "10s", **how: Any) -> Client:
    publisher = stage.clients.get("p") or stage.client("p")
    publisher.publish(topic, number, receipt=receipt, **how)
    return publisher


def of_a_queue(**terms: Any) -> tuple[QueueStage, Any]:
    stage = QueueStage()
    peer = stage.peer("p")
    peer.declare("q", **terms)
    return stage, peer


def nothing_left(stage: Stage) -> None:
    found = stage.broker.registry.receipts
    assert not found.open
    assert not found.done
    assert not found._of_session
    assert not found._parked
    stage.run(1)  # what was looked at in vain is dropped at a tick
    assert not found._old
    assert all(feed.lane.receipts is NO_RECEIPTS for feed in stage.broker.registry.router.feeds.values())
    assert all("receipts" not in session.tab.amounts for session in stage.broker.registry.sessions.values())
