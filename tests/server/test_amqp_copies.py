"""CC and BCC: more routing keys for a message, and those of BCC are nobody's business."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp.commands import Exchange, Queue
from tests.server.amqp_stage import Client, Content, House

QUEUES = ("to", "cc", "bcc", "other")


@pytest.fixture
def client() -> Client:
    client = Client(House(), "client")
    for name in QUEUES:
        client.declare(name)
    return client


def taken(client: Client) -> dict[str, Content]:
    """By queue, each of which has one at most."""
    found = {name: client.take(name) for name in QUEUES}
    assert [client.take(name) for name in QUEUES] == [None] * len(QUEUES)
    return {name: one for name, one in found.items() if one is not None}


@pytest.mark.parametrize(
    ("headers", "reached"), [
        ({"CC": ["cc"]}, {"to", "cc"}), ({"BCC": ["bcc"]}, {"to", "bcc"}), ({"CC": [], "BCC": []}, {"to"}),
        ({"CC": ["cc", "to", "cc"], "BCC": ["bcc", "bcc"], "mine": 1}, {"to", "cc", "bcc"}),
        ({"CC": ["nobody"], "BCC": ["nobody"]}, {"to"}), ({"CC": ["cc", "other"]}, {"to", "cc", "other"}),
        ({"cc": ["cc"]}, {"to"}),
    ],
)  # fmt: skip
def test_copies_go_to_their_keys_and_nobody_sees_who_got_one_secretly(
    client: Client, headers: dict[str, Any], reached: set[str]
) -> None:
    client.put("to", b"x", headers=headers)
    found = taken(client)
    assert set(found) == reached
    for one in found.values():
        assert one.body == b"x"
        assert "BCC" not in one.headers
        assert one.headers.get("mine") == headers.get("mine")
    assert found["to"].headers.get("CC") == headers.get("CC")


def test_a_queue_that_two_keys_lead_to_has_it_once(client: Client) -> None:
    client.say(Exchange.Declare(exchange="t", exchange_type="topic"))
    for key in ("a.*", "b.*"):
        client.say(Queue.Bind(queue="to", exchange="t", routing_key=key))
    client.put("a.x", b"x", exchange="t", headers={"CC": ["b.x", "a.y"]})
    assert set(taken(client)) == {"to"}


def test_mandatory_is_content_with_a_copy(client: Client) -> None:
    assert client.put("nobody", b"x", headers={"CC": ["cc"]}, mandatory=True) == []
    assert client.put("nobody", b"x", headers={"BCC": ["bcc"]}, mandatory=True) == []
    assert set(taken(client)) == {"cc", "bcc"}


@pytest.mark.parametrize("name", ["CC", "BCC"])
@pytest.mark.parametrize("value", ["cc", 7, [1], ["k"] * 101])
def test_what_is_no_list_of_keys_is_refused(client: Client, name: str, value: object) -> None:
    [answer] = client.put("to", b"x", headers={name: value})
    assert "Channel.Close 406" in answer


@pytest.mark.parametrize("name", ["CC", "BCC"])
def test_topics_of_the_brokers_own_are_not_for_copies(client: Client, name: str) -> None:
    [answer] = client.put("a", b"x", exchange="amq.topic", headers={name: ["$SYS.x"]})
    assert "Channel.Close 403" in answer


@pytest.mark.parametrize(("key", "again"), [(None, {"other", "cc"}), ("other", {"other"})])
def test_dead_letters_with_a_key_of_their_own_are_copied_no_more(
    client: Client, key: str | None, again: set[str]
) -> None:
    arguments = {"x-message-ttl": 0, "x-dead-letter-exchange": "graves"}
    client.say(Exchange.Declare(exchange="graves", exchange_type="direct"))
    for name, bound in (("other", "dying"), ("other", "other"), ("cc", "cc")):
        client.say(Queue.Bind(queue=name, exchange="graves", routing_key=bound))
    client.declare("dying", arguments | ({} if key is None else {"x-dead-letter-routing-key": key}))
    client.put("dying", b"x", headers={"CC": ["nobody", "cc"]})
    assert client.drain("cc") == [b"x"] * (2 if "cc" in again else 1)
    assert client.drain("other") == [b"x"]
