"""The rows of AMPS over queues (test_rows_amps.py has them over topics)."""

from __future__ import annotations

import pytest
from tests.core.queue_rows import assert_told_why
from tests.core.queues_stage import QueueStage, consumer, owner

from headway.core.base.errors import Reason
from headway.server.config import preset_text


@pytest.mark.parametrize("amps", [True, False], ids=["amps", "default"])
def test_m8_disconnecting_ends_the_client_also_if_it_has_consumers_on_other_channels(amps: bool) -> None:
    stage = QueueStage(preset_text("amps") if amps else "", memory="200KB", disk="0B")
    publisher = owner(stage, "q", "other")
    slow = consumer(stage, "slow", acks=False)
    slow.consume("other", channel=2)
    for number, _ in enumerate(stage.steps(20)):
        publisher.publish("q", number, size=1000)
        if slow.closed or not slow.connected:
            break
    if amps:
        assert_told_why(slow, Reason.MEMORY_LIMIT, "memory is over its limit", "its client holds")
        assert not stage.stats_of("slow"), "all of its subscriptions have ended"
    else:
        assert slow.connected
        assert [one.channel.number for one in slow.closed] == [1]
        publisher.publish("other", 1000)
        stage.turn()
        assert slow.of("other", 2) == [1000], "its other channel lives on"
