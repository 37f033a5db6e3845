"""What clients take up besides records: it counts, it ends with what it is of, and there is a limit that says no."""

from __future__ import annotations

import pytest
from tests.core.stage import Client, Stage

from headway.core.base.errors import Reason, Refused
from headway.core.consumer.channel import UNASKED_MAX
from headway.core.consumer.connection.outlet import Outlet
from headway.core.consumer.request import ConnectRequest, Will
from headway.core.consumer.session import Session
from headway.core.log.states import Retained
from headway.core.message.record import Properties, Record

SMALL = {"memory": "1MB", "disk": "0B", "free": "100KB"}
"""600 kB for all clients, half of that for one."""


def connect(stage: Stage, name: str, **fields: object) -> Session:
    outlet: Outlet = stage.monitor.outlet
    request = ConnectRequest(name, "", **fields)  # type: ignore[arg-type]
    return stage.broker.connect(request, outlet, stage.now)


def disconnect(stage: Stage, session: Session, reason: Reason = Reason.CLIENT_GONE, *, will: bool = True) -> None:
    assert session.connected
    stage.broker.disconnect(session, session.outlet, reason, stage.now, will=will)


def will(size: int, delay_s: float = 0.0) -> Will:
    return Will(Record("last/will", bytes(size)), delay_s)


def fill(client: Client, filter: str = "t/{}") -> int:
    """Subscribe until it is refused; how often it was granted."""
    for number in range(10_000):
        try:
            client.subscribe(filter.format(number))
        except Refused as refused:
            if refused.reason is not Reason.CLIENT_MEMORY:
                raise
            return number
    raise AssertionError("there is no limit")


def test_a_subscription_counts_until_it_ends() -> None:
    stage = Stage()
    empty = stage.pool.clients_bytes
    client = stage.client("one")
    before = stage.pool.clients_bytes
    for number in range(10):
        client.subscribe(f"t/{number}")
    ten = stage.pool.clients_bytes - before
    assert ten == client.session.tab.amounts["subscriptions"]
    client.subscribe("t/3", 1)
    assert stage.pool.clients_bytes - before == ten, "another in its place"
    for number in range(9):
        stage.broker.unsubscribe(client.session, f"t/{number}", stage.now)
    assert stage.pool.clients_bytes - before == ten // 10
    client.leave()
    assert stage.pool.clients_bytes == empty


def test_a_long_filter_counts_by_its_levels_and_letters() -> None:
    stage = Stage()
    short, long, deep = (stage.consumer(name, filter) for name, filter in (
        ("short", "t"), ("long", "t" * 60_000), ("deep", "t/" * 100 + "#")))  # fmt: skip
    plain = short.session.tab.bytes
    assert long.session.tab.bytes > plain + 60_000
    assert deep.session.tab.bytes > plain + 100 * 300


def test_a_client_has_its_share_and_all_together_have_theirs() -> None:
    stage = Stage(**SMALL)
    first, second, third = (stage.client(name) for name in ("first", "second", "third"))
    granted = fill(first)
    assert first.session.tab.bytes <= first.session.tab.limit
    assert fill(first, "more/{}") == 0
    assert len(first.session.subscriptions) == granted, "it keeps what it has"
    assert 0 < fill(second) < granted, "by then it is the pool that is full"
    assert stage.pool.clients_bytes <= stage.pool.clients_limit
    assert fill(third) == 0
    with pytest.raises(Refused, match="all together may take up"):
        connect(stage, "fourth", will=will(60_000))
    first.leave()
    assert fill(third) == granted, "there is room again"


def test_what_clients_take_up_keeps_nobody_from_publishing() -> None:
    stage = Stage(**SMALL)
    greedy, also = stage.client("greedy"), stage.client("also greedy")
    publisher = stage.client("publisher")
    fill(greedy)
    fill(also)
    for turn in range(20):
        assert publisher.publish("t/1", turn * 10, 10, size=500)
        stage.run(0.1)
    assert greedy.numbers == also.numbers == list(range(200))
    assert stage.pool.memory_bytes < stage.pool.memory_limit


def test_a_will_counts_until_it_is_published_or_forgotten() -> None:
    stage = Stage()
    before = stage.pool.clients_bytes
    gone = connect(stage, "gone", will=will(64_000))
    assert stage.pool.clients_bytes - before > 64_000
    disconnect(stage, gone)
    assert stage.pool.clients_bytes == before
    late = connect(stage, "late", will=will(64_000, delay_s=5.0), expiry_s=100.0)
    disconnect(stage, late)
    assert stage.pool.clients_bytes - before > 64_000, "it may yet be published"
    stage.run(6)
    assert 0 < stage.pool.clients_bytes - before < 10_000, "the session lives on without it"
    back = connect(stage, "late", clean_start=False, expiry_s=100.0, will=will(10))
    assert back is late
    disconnect(stage, back, Reason.NORMAL, will=False)
    stage.run(110)
    assert stage.pool.clients_bytes == before


def test_a_will_that_there_is_no_room_for_is_refused_with_its_client() -> None:
    stage = Stage(**SMALL)
    with pytest.raises(Refused) as refused:
        connect(stage, "one", will=will(400_000))
    assert refused.value.reason is Reason.CLIENT_MEMORY
    assert "one" not in stage.broker.registry.sessions


def test_who_comes_back_is_let_in_with_what_it_has() -> None:
    stage = Stage(**SMALL)
    client = stage.client("durable", expiry_s=100.0)
    had = fill(client)
    client.leave()
    fill(stage.client("another"))
    client.connect()
    assert client.session.present
    assert len(client.session.subscriptions) == had


def test_what_is_retained_counts_with_its_properties() -> None:
    retained = Retained(bytes_max=100_000)
    lean = Record("t/lean", b"x")
    fat = Record("t/fat", b"x", Properties(user=(("name", "v" * 60_000),)))
    retained.put(lean)
    retained.put(fat)
    assert retained.bytes > 60_000
    with pytest.raises(Refused):
        retained.put(Record("t/fat too", b"x", fat.properties))
    retained.put(Record("t/fat", b""))
    retained.put(Record("t/lean", b""))
    assert retained.bytes == 0


def test_who_does_not_take_what_is_written_for_it_alone_goes_when_there_is_no_room_for_more() -> None:
    """At least once each has a copy with its own ids: what is not taken of it is nobody else's."""
    stage = Stage(memory="2MB", disk="4MB", free="100KB")
    stuck = [stage.consumer(f"stuck {number}", "t", 1, reads=0.0, buffer=5000) for number in range(20)]
    healthy = stage.consumer("healthy", "t", 1)
    stage.client("publisher").publish("t", 0, 1, size=60_000, qos=1)
    stage.run(0.5)
    assert sum(client.connected for client in stuck) == 20, "they may be about to take it"
    stage.run(10)
    assert stage.pool.clients_bytes <= stage.pool.clients_limit
    left = [client for client in stuck if client.connected]
    assert 0 < len(left) < 20
    gone = next(client for client in stuck if not client.connected)
    verdict = stage.broker.verdicts.last(gone.name)
    assert verdict is not None
    assert (verdict.reason, "written for it alone" in verdict.text) == (Reason.CLIENT_MEMORY, True)
    assert healthy.connected
    assert healthy.numbers == [0]


def test_what_is_unsettled_counts_until_it_is_settled() -> None:
    stage = Stage()
    client = stage.consumer("slow", "t", 1, acks=False)
    publisher = stage.client("publisher")
    for number in range(100):
        publisher.publish("t", number, 1, qos=1)
        stage.turn()
    stage.run(1)
    assert client.session.tab.amounts["unsettled"] >= 100 * 100
    client.acknowledge(100)
    stage.run(1)
    assert "unsettled" not in client.session.tab.amounts


def test_who_leaves_deliveries_unacknowledged_is_sent_no_more_than_there_is_room_for() -> None:
    """Others are not locked out, and each acknowledgement lets the client go on."""
    stage = Stage(memory="100KB", free="1MB")
    hoarders = [stage.consumer(f"hoarder {n}", "t", 1, acks=False, buffer=10**7) for n in range(20)]
    for client in hoarders:
        client.session.tab.charge("alice")
    publisher = stage.client("publisher")
    for number in range(500):
        publisher.publish("t", number, 1, qos=1)
        stage.turn()
    limit = stage.pool.clients_limit
    assert limit / 4 < stage.pool.clients_bytes < limit * 0.7, "a user has half of it"
    held = [len(client.numbers) for client in hoarders]
    stage.run(30)
    assert [len(client.numbers) for client in hoarders] == held, "looks at them give them nothing more"
    assert min(held) >= UNASKED_MAX
    assert sum(held) < 2500
    full = hoarders[0]
    assert "alice take up" in full.session.channel.wait_reason
    other = stage.consumer("other", "t", 1)
    publisher.publish("t", 500, 1, qos=1)
    stage.run(1)
    assert other.numbers == [500]
    while len(full.numbers) < 501:
        before = len(full.numbers)
        full.acknowledge(10)
        stage.turn()
        assert len(full.numbers) > before
    assert full.numbers == list(range(501))
    for client in hoarders:
        client.acknowledge(10**6)
    stage.run(5)
    assert stage.pool.clients_bytes < limit / 4
