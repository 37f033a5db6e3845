"""What says that something durable was declared, or is no more, is said once the journal has it; and in order."""

from __future__ import annotations

import pytest
from pamqp.commands import Basic, Confirm, Exchange, Queue, Tx
from tests.server.amqp_stage import Client, House, message
from tests.server.greedy_stage import Greedy
from tests.server.test_amqp1_greedy import client as amqp1
from tests.server.test_amqp1_resuming import performatives
from tests.sim.tape import NothingRecorded

from headway.core.log.durable import Ledger
from headway.server.connections.connections import PendingReplies
from headway.wire.amqp1.performatives import Attach, Detach, Flow, Source, Target
from headway.wire.amqp1.replies import write


class Journal:
    """A journal that writes when it is told to."""

    def __init__(self, house: House) -> None:
        self.ledger = Ledger()
        self.committed = 0
        self._house = house
        self._waiting: dict[PendingReplies, None] = {}
        house.journal = self  # type: ignore[assignment]
        house.broker.keep(self.ledger, NothingRecorded())
        self.write()

    def chunk(self, *_: object) -> None:
        """It gives nothing back."""

    def turn(self, now: float) -> None:
        """A turn writes nothing."""

    def load(self, *_: float) -> None:
        """It is not measured."""

    def wait(self, who: PendingReplies) -> int:
        number = self.ledger.number if self.ledger.has_work else self.ledger.number - 1
        if number <= self.committed:
            return 0
        self._waiting[who] = None
        return number

    def forget(self, who: PendingReplies) -> None:
        self._waiting.pop(who, None)

    def take(self) -> int | None:
        """The end of a turn. Returns what is to be written."""
        commit = self.ledger.take(self._house.broker.registry.sequence, 0.0)
        return None if commit is None else commit.number

    def write(self, number: int | None = None) -> None:
        """All of it; or up to this commit."""
        taken = number or self.take()
        if taken is None:
            return
        self.committed = taken
        self._house.broker.written(taken)
        waiting, self._waiting = self._waiting, {}
        for who in waiting:
            who.on_commit(taken)
        self._house.run()


@pytest.fixture
def house() -> House:
    return House()


@pytest.fixture
def journal(house: House) -> Journal:
    return Journal(house)


@pytest.fixture
def client(house: House, journal: Journal) -> Client:
    return Client(house, channels=2)


def kept(client: Client) -> None:
    journal = client.house.journal
    assert isinstance(journal, Journal)
    journal.write()
    client.run()


DURABLE = Queue.Declare(queue="q", durable=True)
BOUND = Queue.Bind(queue="q", exchange="amq.direct", routing_key="k")
TARGET = Exchange.Declare(exchange="e", exchange_type="direct", durable=True)
TO_IT = Exchange.Bind(destination="e", source="amq.topic", routing_key="#")


@pytest.mark.parametrize(
    ("before", "said", "answer"),
    [
        ((), DURABLE, "Queue.DeclareOk"),
        ((DURABLE,), BOUND, "Queue.BindOk"),
        ((DURABLE, BOUND), Queue.Unbind(queue="q", exchange="amq.direct", routing_key="k"), "Queue.UnbindOk"),
        ((DURABLE,), Queue.Delete(queue="q"), "Queue.DeleteOk"),
        ((), TARGET, "Exchange.DeclareOk"),
        ((TARGET,), TO_IT, "Exchange.BindOk"),
        ((TARGET, TO_IT), Exchange.Unbind(destination="e", source="amq.topic", routing_key="#"), "Exchange.UnbindOk"),
        ((TARGET,), Exchange.Delete(exchange="e"), "Exchange.DeleteOk"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_it_is_said_once_the_journal_has_it(client: Client, before: tuple[Queue.Declare, ...], said: Queue.Declare,
                                            answer: str) -> None:  # fmt: skip
    client.say(*before)
    kept(client)
    client.new()
    assert client.say(said) == []
    kept(client)
    assert [word.split()[1] for word in client.new()] == [answer]


def test_a_purge_too(client: Client) -> None:
    client.say(DURABLE)
    kept(client)
    client.put("q", b"1", delivery_mode=2)
    kept(client)
    client.new()
    assert client.say(Queue.Purge(queue="q")) == []
    kept(client)
    assert client.new() == ["1 Queue.PurgeOk 1"]


@pytest.mark.parametrize(
    "said",
    [
        Queue.Declare(queue="t"), Queue.Declare(queue="x", durable=True, exclusive=True),
        Exchange.Declare(exchange="t", exchange_type="fanout"), Queue.Declare(queue="q", durable=True),
    ],
    ids=["transient", "exclusive", "exchange", "known"],
)  # fmt: skip
def test_what_is_not_durable_or_is_kept_already_waits_for_nothing(client: Client, said: Queue.Declare) -> None:
    client.say(DURABLE)
    kept(client)
    client.new()
    assert len(client.say(said)) == 1


def test_without_a_journal_nothing_waits(house: House) -> None:
    assert len(Client(house).say(DURABLE, BOUND, Queue.Purge(queue="q"), Queue.Delete(queue="q"))) == 4


def test_what_another_has_declared_and_is_not_kept_yet_is_waited_for_too(client: Client, house: House) -> None:
    client.say(DURABLE)
    other = Client(house)
    assert other.say(DURABLE) == []
    kept(client)
    other.run()
    assert len(other.new()) == 1


def test_answers_keep_their_order_whatever_they_are_about(client: Client, journal: Journal) -> None:
    """A consumer is told so before it is delivered to; other declarations go into the same commit."""
    asked = [DURABLE, BOUND, Queue.Declare(queue="t"), Basic.Qos(0, 3), Basic.Consume(queue="q", consumer_tag="c")]
    assert client.say(*asked, message(1, "k", b"x", "amq.direct"), Queue.Declare(queue="u")) == []
    number = journal.take()
    journal.write(number)
    client.run()
    assert [word.split()[1] for word in client.new()] == [
        "Queue.DeclareOk", "Queue.BindOk", "Queue.DeclareOk", "Basic.QosOk", "Basic.ConsumeOk", "Queue.DeclareOk",
        "Basic.Deliver",
    ]  # fmt: skip
    assert not client.connection.reading_paused_by


def test_many_declarations_wait_for_one_commit(client: Client, house: House, journal: Journal) -> None:
    house.broker.registry.queue_owners.share = 1.0  # all of the queues are one client's
    asked = [Queue.Declare(queue=f"q{number}", durable=True) for number in range(500)]
    assert client.say(*asked, Basic.Qos(0, 1)) == []
    before = journal.committed
    kept(client)
    assert len(client.new()) == 501
    assert journal.committed == before + 1


def test_who_waits_is_not_held_up_by_a_channel_that_is_closed_meanwhile(client: Client) -> None:
    """What its answer was about is there all the same."""
    assert client.say(DURABLE) == []
    assert client.say(Basic.Qos(0, 1), channel=2) == []
    assert client.connection.reading_paused_by == {"journal": None, "turn": None}
    client.peer.channels[1].close()
    client.house.run()
    client.run()
    assert client.new() == ["2 Basic.QosOk"]
    assert "q" in client.house.queues


def test_a_client_that_leaves_waits_for_nothing(client: Client, journal: Journal) -> None:
    client.say(DURABLE)
    client.leave()
    kept(client)
    assert not client.open


def test_what_follows_a_commit_is_answered_after_it(client: Client) -> None:
    client.say(DURABLE, Tx.Select())
    kept(client)
    client.new()
    asked = [message(1, "q", b"x", delivery_mode=2), Tx.Commit(), Basic.Qos(0, 1), Queue.Declare(queue="t")]
    assert client.say(*asked) == []
    kept(client)
    assert [word.split()[1] for word in client.new()] == ["Tx.CommitOk", "Basic.QosOk", "Queue.DeclareOk"]


def test_confirms_hold_up_no_other_answers(client: Client) -> None:
    client.say(DURABLE, Confirm.Select())
    kept(client)
    client.new()
    assert client.say(message(1, "q", b"x", delivery_mode=2), Basic.Qos(0, 1)) == ["1 Basic.QosOk"]
    assert client.say(Queue.Declare(queue="t")) == ["1 Queue.DeclareOk t 0 0"]
    kept(client)
    assert [word.split()[1] for word in client.new()] == ["Basic.Ack"]


# -- AMQP 1.0 ---------------------------------------------------------------------------------------------------------


def durable(name: str, handle: int = 0) -> bytes:
    source = Source("topic://t", durable=2, expiry_policy="never")
    return write(0, Attach(name, handle, True, 0, source=source, target=Target()))


def heard(greedy: Greedy, said: bytes = b"") -> list[str]:
    """The kinds of the answers, once everything is done that need not wait."""
    return [type(one).__name__ for one in performatives(greedy.say(said) if said else bytes(greedy.sock.taken))]


def test_a_link_that_is_closed_for_good_is_said_to_be_once_the_journal_has_it(house: House, journal: Journal) -> None:
    one = amqp1(house)
    assert heard(one, durable("a")) == []
    journal.write()
    assert heard(one) == ["Attach"]
    assert heard(one, write(0, Detach(0, True))) == []
    assert "durable.greedy.a" not in house.queues
    journal.write()
    assert heard(one) == ["Detach"]


def test_a_handle_is_another_link_s_once_its_client_knows_that_the_one_before_is_closed(
    house: House, journal: Journal
) -> None:
    one = amqp1(house)
    one.say(durable("a") + durable("b", 1))
    journal.write()
    again = write(0, Attach("c", 0, True, 0, source=Source("topic://u"), target=Target()))
    assert heard(one, write(0, Detach(0, True)) + write(0, Detach(1, True)) + again + write(0, Flow(0, 9, 0, 9))) == []
    journal.write()
    assert heard(one) == ["Detach", "Detach", "Attach"]
    assert heard(one, write(0, Flow(0, 9, 0, 9, echo=True))) == ["Flow"]
