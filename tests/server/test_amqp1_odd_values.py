"""Values of AMQP 1.0 that are well-formed, and that no client has any business to say: each is its client's fault, and
it is told so. No library says them, so these are bare frames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from tests.server.amqp_stage import House
from tests.server.greedy_stage import Greedy
from tests.server.pretended import Socket
from tests.server.test_amqp1_greedy import begin, client, filled, performatives, receiver, sender

from headway.server.amqp1.peer import REFUSED, Amqp1Peer
from headway.wire.amqp1 import values as writing
from headway.wire.amqp1.items import Layer
from headway.wire.amqp1.performatives import (
    KINDS,
    Accepted,
    Attach,
    Begin,
    Close,
    Coordinator,
    Declare,
    Detach,
    Discharge,
    Disposition,
    End,
    Flow,
    Modified,
    Received,
    Rejected,
    SaslInit,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from headway.wire.amqp1.replies import HEADERS, encoded, sasl_outcome, write
from headway.wire.amqp1.values import Described, Symbol


@pytest.fixture
def house() -> House:
    return House()


def wrapped(body: bytes, channel: int = 0) -> bytes:
    """A frame."""
    return (8 + len(body)).to_bytes(4, "big") + b"\2\0\0" + bytes((channel,)) + body


def asks(number: int, what: object) -> bytes:
    """A message to the coordinator, which is on a session of its own."""
    transfer = encoded(Transfer(0, number, b"t", 0, False, False))
    return wrapped(transfer + writing.described(0x77, encoded(what)), 9)


def dispositions(said: bytes) -> list[Any]:
    return [one.state for one in performatives(said) if isinstance(one, Disposition)]


def with_deliveries(house: House) -> tuple[Greedy, bytes]:
    """A client that has ten deliveries, and a transaction."""
    filled(house, 100)
    one = client(house)
    one.say(receiver(0, "queue://work") + write(0, Flow(0, 1 << 30, 0, 1 << 30, 0, 0, 10)) + begin(9))
    one.say(write(9, Attach("c", 0, False, source=Source(), target=Coordinator(), initial_delivery_count=0)))
    [declared] = dispositions(one.say(asks(0, Declare())))
    assert house.stats("work").unacknowledged == 10
    return one, declared.value[0]


@pytest.mark.parametrize(("outcome", "condition", "text"), [
    (Received(0, 0), "amqp:invalid-field", "received is no outcome"),
    (TransactionalState(b"t"), "amqp:not-implemented", "unknown state"),
    (Coordinator(), "amqp:not-implemented", "unknown state"),
], ids=["received", "transactional", "unknown"])  # fmt: skip
def test_who_settles_with_what_is_no_outcome_in_a_transaction_has_its_session_ended_and_no_commit(
    house: House, outcome: object, condition: str, text: str
) -> None:
    one, txn_id = with_deliveries(house)
    [end] = performatives(one.say(write(0, Disposition(True, 0, 0, False, TransactionalState(txn_id, outcome)))))
    assert isinstance(end, End)
    assert end.error.condition == condition
    assert text in end.error.description
    assert (house.stats("work").unacknowledged, house.stats("work").records) == (0, 100)
    [answer] = dispositions(one.say(asks(1, Discharge(txn_id))))
    assert isinstance(answer, Rejected)
    assert answer.error.condition == "amqp:transaction:rollback"
    assert text in answer.error.description
    assert house.stats("work").records == 100


def test_settling_in_a_transaction_without_an_outcome_accepts(house: House) -> None:
    one, txn_id = with_deliveries(house)
    one.say(write(0, Disposition(True, 0, 4, True, TransactionalState(txn_id))))
    assert dispositions(one.say(asks(1, Discharge(txn_id)))) == [Accepted()]
    assert (house.stats("work").unacknowledged, house.stats("work").records) == (5, 90)


def test_who_chooses_scram_once_a_reload_has_taken_it_back_is_refused(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    sock = Socket()
    house.accept(sock, peer=Amqp1Peer)
    monkeypatch.setattr(house.logins, "scram", object)
    sock.incoming.append(HEADERS[Layer.SASL])
    house.run()
    assert b"SCRAM-SHA-256" in sock.taken
    sock.taken.clear()
    monkeypatch.setattr(house.logins, "scram", lambda: None)
    chosen = write(0, SaslInit(Symbol("SCRAM-SHA-256"), b"n,,n=a,r=b"))
    sock.incoming.append(chosen[:5] + b"\1" + chosen[6:])
    house.run()
    assert sock.taken == sasl_outcome(REFUSED)
    assert "mechanism 'SCRAM-SHA-256' is not offered here" in house.blamed[-1]


ODD: list[Any] = [
    True, 5, -1, 1.5, "text", Symbol("word"), b"bytes", [], [1, "a"], {}, {"a": 1}, {1: None}, {Symbol("a"): [{}]},
    Described(7, None), Described(Symbol("amqp:rejected:list"), []), Described(b"7", {}), Described(7, Described(7, 7)),
    Accepted(), Received(0, 0), Rejected(5), Modified(None, None, {}), Source(5), Source("q", capabilities=5),
    Source("q", filter={1: [], "selector": 5}), Target(5), Target("t", capabilities=[5]), Coordinator(5), Declare(5),
    TransactionalState(b"x", 5),
]  # fmt: skip
PLAIN: list[Any] = [
    Begin(None, 0, 100, 100), Flow(0, 100, 0, 100, 0, 0, 5), Detach(0, True), End(), Close(),
    Disposition(True, 0, 0, True, Accepted()), Disposition(True, 0, 0, False, Rejected()),
    Attach("n", 1, False, 0, 0, Source(), Target("queue://work"), initial_delivery_count=0),
    *(Attach("n", 1, True, 0, 0, source, Target()) for source in (
        Source("queue://work"), Source("topic://a.b"), Source("topic://a.b", 2), Source("/exchanges/amq.fanout"),
        Source("queue://work", distribution_mode="copy"), Source(None, dynamic=True),
    )),
]  # fmt: skip


def odd(plain: Any) -> Iterator[Any]:
    """The same with an odd value in one field, or in one of what stands in a field."""
    for field, inner in zip(plain._fields, plain, strict=True):
        for value in ODD:
            yield plain._replace(**{field: value})
        if isinstance(inner, Source | Target | Rejected):
            for one in odd(inner):
                yield plain._replace(**{field: one})


def anything(value: Any) -> bytes:
    """Any value in any field, as it is written."""
    match value:
        case Described(descriptor, inner):
            return b"\0" + anything(descriptor) + anything(inner)
        case list():
            return writing.list_of(list(map(anything, value)))
        case tuple():
            number = next(number for number, kind in KINDS.items() if kind is type(value))
            return writing.described(number, writing.list_of(list(map(anything, value))))
        case int() if type(value) is int and value >= 0:
            return writing.uint(value)
    return writing.value(value)


SECTIONS: list[Any] = [
    *(Described(section, [value]) for section in (0x70, 0x73) for value in ODD),
    *(Described(section, {key: value}) for section in (0x71, 0x72, 0x74, 0x78) for key in ("a", 5) for value in ODD),
    *(Described(section, value) for section in (*range(0x70, 0x79), 0x99) for value in ODD),
]


def all_are_told(house: House, said: Iterable[bytes], *opening: bytes) -> None:
    """Each of these brings an answer or none, but no crash of the broker."""
    for one in said:
        try:
            greedy = client(house)
            for piece in opening:
                greedy.say(piece)
            greedy.say(one)
            greedy.say(b"")
        except Exception as crash:
            raise AssertionError(f"{performatives(one)}: {crash!r}") from crash


@pytest.mark.parametrize("plain", PLAIN, ids=lambda plain: type(plain).__name__)
def test_odd_values_in_the_fields_of_performatives(house: House, plain: Any) -> None:
    said = (wrapped(anything(one), isinstance(plain, Begin)) for one in odd(plain))
    all_are_told(house, said, receiver(0, "queue://work"))


def test_odd_values_in_the_fields_of_transfers(house: House) -> None:
    plain = Transfer(0, 0, b"t", 0, False, False, 0, TransactionalState(b"x"))
    body = writing.described(0x75, writing.binary(b"body"))
    all_are_told(house, (wrapped(anything(one) + body) for one in odd(plain)), sender(0, "queue://work"))


@pytest.mark.parametrize("target", [Target("queue://work"), Target(), Coordinator()], ids=["queue", "any", "control"])
def test_odd_values_in_the_sections_of_messages(house: House, target: object) -> None:
    head = encoded(Transfer(0, 0, b"t", 0, False, False))
    body = writing.described(0x75, writing.binary(b"body"))
    said = (wrapped(head + anything(one) + more) for one in SECTIONS for more in (b"", body))
    attach = Attach("s", 0, False, source=Source(), target=target, initial_delivery_count=0)
    takes = receiver(1, "queue://work") + write(0, Flow(0, 1 << 30, 0, 1 << 30, 1, 0, 10))
    all_are_told(house, said, write(0, attach) + takes)
