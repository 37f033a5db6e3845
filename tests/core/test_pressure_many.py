"""Pressure of very many lanes, each of which holds little."""

from __future__ import annotations

from math import inf

import pytest
from bench.wires.packets import connect, encode_publish
from tests.core.pressure_stage import publish_while_read
from tests.core.stage import STUCK, Stage

from headway.core.base.errors import Reason
from headway.core.governance.memory import LOOKS_MAX
from headway.core.log.lanes.pool import RESERVE, STAYS_MAX
from headway.core.message.record import Properties, Run
from headway.core.routing.matching.router import SLICES_PER_POOL
from headway.wire.mqtt.decoder import MqttDecoder

MANY = LOOKS_MAX + 16
"""Lanes: more than a turn looks at in vain."""


def test_lanes_that_close_one_after_the_other_make_no_room_for_more() -> None:
    """Each of those who are away has a lane of its own, what they hold was promised, and there is no disk."""
    stage = Stage(memory="100KB", disk="0B", max_client_share="100%")
    for number in range(26):
        stage.consumer(f"away {number}", f"t/{number}", 1, expiry_s=3600.0).leave()
    publisher = stage.client("publisher")
    for number in range(26):
        publisher.publish(f"t/{number}", 0, 40, size=250, qos=1)
        stage.run(1.5)
    assert stage.pool.memory_peak_bytes <= 100_000 * (STAYS_MAX + RESERVE) + 40 * 300, "but for the last that came"


@pytest.mark.parametrize("size", [1000, 250])
def test_many_who_hold_little_each_make_room_on_the_disk(size: int) -> None:
    """Each of those who are away has 3 to 6 kB in a lane of its own: no lane is large, the pool is full."""
    stage = Stage(memory="150KB", disk="100MB")
    away = [stage.consumer(f"away {number}", f"t/{number}", 1, expiry_s=3600.0) for number in range(MANY)]
    for one in away:
        one.leave()
    publisher = stage.client("publisher")
    for number in range(MANY):
        publisher.publish(f"t/{number}", 0, 3000 // size, size=size, qos=1)
        stage.run(0.1)
        publisher.publish(f"t/{number}", 3000 // size, 3000 // size, size=size, qos=1)
        assert not publisher.paused, number
    stage.run(1)
    assert stage.pool.memory_bytes < 150_000
    for one in away:
        one.connect()
    stage.run(1)
    assert all(one.numbers == list(range(2 * (3000 // size))) for one in away)
    assert not stage.disk.held


def test_lanes_of_very_small_records_do_not_hide_those_that_are_worth_writing() -> None:
    """Two hundred lanes have 6 kB each, of records whose index is larger than they are; many more have 1.5 kB."""
    stage = Stage(memory="1600KB", disk="100MB")
    names = [*(f"tiny/{number}" for number in range(200)), *(f"small/{number}" for number in range(400))]
    away = {name: stage.consumer(name, name, 1, expiry_s=3600.0) for name in names}
    for one in away.values():
        one.leave()
    publisher = stage.client("publisher")
    for number in range(150):
        for name in names[:200]:
            assert publisher.publish(name, number, size=30, qos=1)
        stage.run(0.125)
    for number in range(3):
        for name in names[200:]:
            for _ in range(10):
                if publisher.publish(name, number, size=1500, qos=1):
                    break
                stage.run(0.5)  # until what is on its way to disk is there
            else:
                pytest.fail(f"the publisher of {name} waits, and the disk has room")
    stage.run(1)
    assert stage.pool.disk_bytes > 0
    assert len(stage.broker.verdicts) == 0
    for one in away.values():
        one.connect()
    stage.run(1)
    assert all(len(one.numbers) == (150 if name[0] == "t" else 3) for name, one in away.items())


@pytest.mark.parametrize("qos", [0, 1])
def test_what_is_in_memory_of_what_has_left_it_makes_room_too(qos: int) -> None:
    """The index of small records that came one by one is nearly as large as they are. Who was promised nothing is given
    up for it; who was is not, and whoever publishes there waits, alone."""
    stage = Stage(memory="30KB", disk="100MB", max_client_share="100%")
    stage.consumer("away", "t", 1, expiry_s=3600.0).leave()
    publisher, other = stage.client("publisher"), stage.client("other")
    for number in range(900):
        if publisher.paused:
            break
        publisher.publish("t", number, 1, size=60, qos=qos)
        stage.run(0.125)
    stage.run(2)
    lost = stage.broker.registry.sessions["away"].subscriptions["t"].counters.gap_records
    assert publisher.paused is (qos == 1)
    assert (lost[Reason.MEMORY_LIMIT] > 0) is (qos == 0)
    assert stage.pool.memory_peak_bytes <= 45_000
    healthy = stage.consumer("healthy", "u", 1)
    assert publish_while_read(other, 10, "u") == 500
    assert healthy.numbers == list(range(500))


def test_what_nobody_was_promised_makes_no_room_for_more() -> None:
    """The stuck, each with a lane of its own, are given up, not all at once; meanwhile publishers wait."""
    stage = Stage(memory="700KB", disk="700KB", max_client_share="100%")
    stage.disk.delay_s = 1.0
    for number in range(100):
        stage.client(f"stuck {number}", reads=STUCK, buffer=500).subscribe("t", selector=f"n > {number}")
    publisher = stage.client("publisher")
    for _ in range(60):
        if not publisher.paused:
            stage.broker.publish(publisher.session, [selected_run(4, 400)], stage.now)
        stage.run(0.125)
        assert not stage.pool.closed_bytes
    assert stage.pool.memory_peak_bytes <= 700_000 + 4 * 450 * 100, "what was brought last"


def test_one_run_into_many_lanes_is_no_more_than_a_slice_above_the_limit() -> None:
    stage = Stage(memory="1MB", disk="0B")
    for number in range(100):
        stage.client(f"stuck {number}", reads=STUCK, buffer=500).subscribe("t", selector=f"n > {number}")
    publisher = stage.client("publisher")
    left: Run | None = selected_run(500, 300)
    slices = 0
    while left is not None and not publisher.session.paused_by:
        left = stage.broker.intake.publish_some(publisher.session, [left], stage.now, inf).rest
        slices += 1
    assert left is not None, "the rest waits"
    assert slices > 1
    assert stage.pool.memory_peak_bytes <= 1_000_000 * (1 + 1 / SLICES_PER_POOL)


def selected_run(count: int, size: int) -> Run:
    """Records of the topic ``t`` whose property ``n`` is 1000."""
    frame = encode_publish("t", bytes(size), properties=Properties(user=(("n", "1000"),)))
    decoder = MqttDecoder(topic_alias_max=0)
    decoder.feed(connect("publisher", 5))
    (run,) = decoder.feed(frame * count)
    assert isinstance(run, Run)
    return run
