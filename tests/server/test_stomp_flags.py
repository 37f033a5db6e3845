"""Headers of STOMP that are true or false, and frames with a content-length."""

from __future__ import annotations

import pytest
from tests.server.amqp_stage import House
from tests.server.greedy_stage import Greedy

from headway.server.stomp.peer import StompPeer


def client(house: House, version: str = "1.2") -> Greedy:
    return Greedy(house, StompPeer, f"CONNECT\naccept-version:{version}\nhost:x\nclient-id:me\n\n\0".encode())


@pytest.mark.parametrize(
    ("headers", "name", "durable", "auto_delete"),
    [
        ("durable:true\nauto-delete:false", "durable.me.1.a", True, False),
        ("durable:True\nauto-delete:False", "durable.me.1.a", True, False),
        ("persistent: TRUE ", "durable.me.1.a", True, False),
        ("durable:True\nauto-delete:True", "durable.me.1.a", True, True),
        ("x-queue-name:mine", "mine", False, True),
        ("x-queue-name:mine\nauto-delete:false", "mine", False, False),
        ("x-queue-name:mine\nauto-delete:False\ndurable:False", "mine", False, False),
    ],
)
def test_queue_of_a_topic_subscription_is_as_its_flags_say(
    headers: str, name: str, durable: bool, auto_delete: bool
) -> None:
    house = House()
    client(house).say(f"SUBSCRIBE\nid:1\ndestination:/topic/a\n{headers}\n\n\0".encode())
    terms = house.queues[name].terms
    assert (terms.durable, terms.auto_delete) == (durable, auto_delete)


@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE"])
@pytest.mark.parametrize(
    ("headers", "durable", "auto_delete"),
    [
        ("auto-delete:false", True, False), ("auto-delete:False", True, False), ("auto-delete:True", True, True),
        ("durable:True", True, False), ("durable:False", False, False),
    ],
)  # fmt: skip
def test_queue_is_made_as_a_frame_says(command: str, headers: str, durable: bool, auto_delete: bool) -> None:
    house = House()
    client(house).say(f"{command}\nid:1\ndestination:/queue/q\n{headers}\n\n\0".encode())
    terms = house.queues["q"].terms
    assert (terms.durable, terms.auto_delete) == (durable, auto_delete)


def test_flags_are_read_in_any_case_and_refused_if_they_are_none() -> None:
    house = House()
    one, other = client(house), client(house)
    one.say(b"SUBSCRIBE\nid:1\ndestination:/queue/q\nexclusive:True\n\n\0")
    assert b"ERROR" in other.say(b"SUBSCRIBE\nid:1\ndestination:/queue/q\n\n\0")
    one.say(b"SUBSCRIBE\nid:2\ndestination:/topic/t\nno-local:True\n\n\0")
    assert one.say(b"SEND\ndestination:/topic/t\n\nmine\0") == b""
    said = one.say(b"SUBSCRIBE\nid:3\ndestination:/queue/r\nauto-delete:maybe\nreceipt:r\n\n\0")
    assert b"the header auto-delete: true or false, not 'maybe'" in said
    assert b"\nreceipt-id:r\n" in said


def test_nack_with_requeue_in_capitals_gives_nothing_back() -> None:
    house = House()
    one = client(house)
    one.say(b"SUBSCRIBE\nid:1\ndestination:/queue/q\nack:client-individual\n\n\0SEND\ndestination:/queue/q\n\nx\0")
    one.say(b"NACK\nid:1\nrequeue:FALSE\ncontent-length:0\n\n\0")
    assert (house.stats("q").records, house.stats("q").unacknowledged) == (0, 0)


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(
    "ack", ["ACK\nID\nsubscription:1\ncontent-length:0\n\n\0", "ACK\ncontent-length:2\nsubscription:1\nID\n\nhi\0\n",
            "ACK\r\nID\r\nsubscription:1\r\ncontent-length:0\r\n\r\n\0\r\n", "ACK\nsubscription:1\nID\n\nhi\0"],
)  # fmt: skip
def test_acks_may_have_a_content_length_and_a_body(ack: str, at_once: bool, version: str) -> None:
    house = House()
    one = client(house, version)
    one.say(b"SUBSCRIBE\nid:1\ndestination:/queue/q\nack:client-individual\n\n\0")
    one.say(b"SEND\ndestination:/queue/q\n\nx\0" * 4)
    name = "id" if version == "1.2" else "message-id"
    acks = "".join(ack.replace("ID", f"{name}:{number}") for number in (1, 2, 3))
    said = f"{acks}ACK\n{name}:4\nsubscription:1\n\n\0".encode()
    for piece in [said] if at_once else [said[at : at + 1] for at in range(len(said))]:
        one.say(piece)
    assert house.stats("q").unacknowledged == 0
    for frame in ("BEGIN\ntransaction:t", "COMMIT\ntransaction:t", "UNSUBSCRIBE\nid:1", "DISCONNECT"):
        assert b"RECEIPT" in one.say(f"{frame}\nreceipt:r\ncontent-length:0\n\n\0".encode())


def test_an_exclusive_consumer_as_activemq_has_it_gets_all_of_the_queue_and_others_wait() -> None:
    house = House()
    one, other, sender = client(house), client(house), client(house)
    one.say(b"SUBSCRIBE\nid:1\ndestination:/queue/q\nactivemq.exclusive:true\n\n\0")
    other.say(b"SUBSCRIBE\nid:1\ndestination:/queue/q\nactivemq.exclusive:true\n\n\0")
    one.sock.taken.clear()
    other.sock.taken.clear()
    sender.say(b"SEND\ndestination:/queue/q\n\nx\0" * 4)
    assert (one.sock.taken.count(b"MESSAGE\n"), other.sock.taken.count(b"MESSAGE\n")) == (4, 0)
    other.sock.taken.clear()
    one.say(b"UNSUBSCRIBE\nid:1\n\n\0")
    sender.say(b"SEND\ndestination:/queue/q\n\nx\0" * 4)
    assert other.sock.taken.count(b"MESSAGE\n") == 4
