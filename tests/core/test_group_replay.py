"""What a member of an MQTT group had not acknowledged, and cannot be sent again when it comes back."""

from __future__ import annotations

import msgspec
import pytest
from tests.core.stage import Client, Stage

from headway.core.base.errors import Reason
from headway.core.queue.queue import Queue, queue_of

HELD = 3


def came_back(stage: Stage, qos: int, *, packet_max: int, filter: str = "$share/g/t") -> tuple[Client, Queue]:
    """A member that had as many deliveries as it may have, and comes back with a smaller limit of its packets."""
    member = stage.client("member", expiry_s=1000.0, window=HELD, acks=False)
    subscription = member.subscribe(filter, qos)
    queue = queue_of(subscription.reader.queue)
    stage.client("publisher").publish("t", 0, HELD, size=500, qos=qos)
    stage.turn()
    assert member.numbers == [0, 1, 2]
    member.leave()
    member.request = msgspec.structs.replace(member.request, max_packet_bytes=packet_max)
    member.acks = True
    member.connect()
    return member, queue


@pytest.mark.parametrize("qos", [1, 2])
def test_what_is_too_large_to_be_sent_again_is_a_gap_that_its_member_is_told_of(qos: int) -> None:
    stage = Stage()
    member, queue = came_back(stage, qos, packet_max=300)
    stage.clients["publisher"].publish("t", 10, 1, size=50, qos=qos)
    stage.run(1)
    assert member.numbers[HELD:] == [10], "it has credit again"
    assert member.gap_told == {"too_large_for_client": HELD}
    assert queue.drops.by_reason == {Reason.TOO_LARGE_FOR_CLIENT: HELD}
    assert stage.clients["publisher"].session.lost_records == {Reason.TOO_LARGE_FOR_CLIENT: HELD}
    assert queue.backlog.unacknowledged == 0
    stage.check()


def test_what_is_too_large_to_be_sent_again_is_told_to_operators_though_nothing_more_is_published() -> None:
    stage = Stage()
    came_back(stage, 1, packet_max=300)
    watcher = stage.consumer("watcher", "$SYS/headway/gap/#")
    stage.run(2)
    assert [seen.topic for seen in watcher.seen] == ["$SYS/headway/gap/member"]
    assert f'"records":{HELD}' in watcher.payloads[0]
