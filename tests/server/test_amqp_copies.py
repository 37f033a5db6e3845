"""CC and BCC: more routing keys for a message, and those of BCC are nobody's business."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from pamqp.commands import Exchange, Queue
from tests.server.amqp_stage import Client, Content, House
from tests.server.test_amqp1_greedy import client as amqp1_client
from tests.server.test_amqp1_greedy import sender, transfer
from tests.server.test_hostile import Lines
from tests.server.test_openwire_greedy import client as openwire_client
from tests.wire import openwire_frames as frames

from headway.core.routing.matching.bindings import Exchanges
from headway.server.amqp.publisher import SEARCHED_MAX
from headway.wire.amqp1 import values as writing
from headway.wire.openwire.codes import Type

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


@pytest.fixture
def crowd(client: Client) -> Client:
    """Every key ``all.…`` leads to 300 queues."""
    client.say(Exchange.Declare(exchange="crowded", exchange_type="topic"))
    for number in range(300):
        client.declare(f"q{number}", {"x-max-length": 1})
        keys = ("all.*", f"alone.{number}")  # a binding of its own, or the queues would share a lane
        client.say(*(Queue.Bind(queue=f"q{number}", exchange="crowded", routing_key=key) for key in keys))
    return client


@pytest.mark.parametrize("name", ["CC", "BCC"])
def test_keys_that_lead_to_very_many_are_refused_together(crowd: Client, name: str) -> None:
    lines = Lines()
    few, many = ([f"all.{number}" for number in range(count)] for count in (12, 100))
    assert crowd.put("all.x", b"x", exchange="crowded", headers={name: few}) == []
    assert [crowd.house.stats(f"q{number}").records for number in range(300)] == [1] * 300
    with lines.counted():
        answers = crowd.put("all.x", b"y", exchange="crowded", headers={name: [f"{key} anew" for key in many]})
    assert lines.count < 200_000
    assert "Channel.Close 506" in answers[0]


def test_nor_may_it_take_long_to_find_where_they_lead(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    client.say(Exchange.Declare(exchange="winding", exchange_type="topic"))
    for number in range(2):
        words = f"{number:010b}".replace("0", "a.#.").replace("1", "*.#.")
        client.say(Queue.Bind(queue="to", exchange="winding", routing_key=f"#.{words}z"))
    keys, searched = [f"{'a.' * 120}{number}" for number in range(100)], list[int]()
    route = Exchanges.route
    monkeypatch.setattr(Exchanges, "route", lambda self, *how: (route(self, *how), searched.append(self.visited))[0])
    answers = client.put("to", b"x", exchange="winding", headers={"CC": keys})
    assert sum(searched) < 2 * SEARCHED_MAX
    assert "Channel.Close 506" in answers[0]


def over_amqp_1_0(house: House) -> bytes:
    copies = writing.described(0x74, writing.map_of([(writing.value("CC"), writing.value(["secret"]))]))
    return amqp1_client(house, "other").say(sender(0, "queue://work") + transfer(0, 0, b"x", copies))


def over_openwire(house: House, count: int) -> bytes:
    copies = b"\0\0\0\1\0\2CC\x0c\0\0\0\1\x09\0\6secret"
    said = (frames.message(Type.BYTES_MESSAGE, frames.queue("work"), b"x", copies, sequence=number,
                           wants_response=count == 1, producer=frames.producer_id())
            for number in range(count))  # fmt: skip
    return openwire_client(house, "other").say(b"".join(said))


@pytest.mark.parametrize("send", [over_amqp_1_0, partial(over_openwire, count=1), partial(over_openwire, count=20)])
def test_a_list_of_keys_is_refused_that_comes_over_another_protocol(send: Callable[[House], bytes]) -> None:
    """Nobody checks what the client may do with these keys."""
    house = House()
    owner = Client(house, "owner")
    for name in ("work", "secret"):
        owner.declare(name)
    assert b"only clients of AMQP 0-9-1" in send(house)
    assert house.stats("work").records == house.stats("secret").records == 0
