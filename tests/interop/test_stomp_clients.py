"""stomp.py speaks to the broker in all three versions: queues, topics, acknowledgements, transactions, destinations."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.interop.conftest import BrokerFactory
from tests.interop.process import BrokerProcess
from tests.interop.stomps import CLIENTS, Client, Raw
from tests.interop.waiting import PATIENCE_S, until
from tests.passwords import cheap_hash

CONFIG = f"""
[listeners.stomp]
url = "stomp://127.0.0.1:0"
allow_anonymous = true
[listeners.auto]
url = "auto://127.0.0.1:0"
allow_anonymous = true
[listeners.closed]
url = "stomp://127.0.0.1:0"
allow_anonymous = false
[listeners.small]
url = "stomp://127.0.0.1:0"
allow_anonymous = true
packet_max = "10kB"
[auth.users]
ann = "{cheap_hash("secret")}"
[[topic]]
filter = "quotes/#"
key = "/symbol"
[journal]
path = "JOURNAL"
"""
Join = Callable[..., Client]


@pytest.fixture(scope="module")
def broker(start: BrokerFactory, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = start(CONFIG.replace("JOURNAL", str(tmp_path_factory.mktemp("journal"))))
    yield process
    process.stop()


@pytest.fixture
def join(broker: BrokerProcess) -> Iterator[Join]:
    """Clients that leave after the test."""
    joined: list[Client] = []

    def one(listener: str = "stomp", **more: object) -> Client:
        client = Client(broker.ports[listener] or 0, **more)  # type: ignore[arg-type]
        joined.append(client)
        return client

    yield one
    for client in joined:
        client.leave()


@pytest.mark.parametrize("version", CLIENTS)
@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
def test_a_queue_in_each_version_and_mode(join: Join, name: str, version: str, ack: str) -> None:
    one, other = join(version=version), join(version=version)
    one.subscribe(f"/queue/{name}", ack=ack)
    for number in range(6):
        other.send(f"/queue/{name}", f"body {number}", own="a:b", persistent="true")
    assert one.bodies(6) == [f"body {number}" for number in range(6)]
    headers = one.heard.messages[0][0]
    assert (headers["destination"], headers["own"], headers["persistent"]) == (f"/queue/{name}", "a:b", "true")
    if ack == "client":
        one.acknowledge(3)
    elif ack == "client-individual":
        one.acknowledge(1)
        one.acknowledge(3)
    left = {"auto": [], "client": [4, 5], "client-individual": [0, 2, 4, 5]}[ack]
    one.leave()
    again = join(version=version)
    again.subscribe(f"/queue/{name}", ack="client-individual")
    other.send(f"/queue/{name}", "last")
    assert again.bodies(len(left) + 1) == [*(f"body {number}" for number in left), "last"]
    assert [headers["redelivered"] for headers, _ in again.heard.messages] == ["true"] * len(left) + ["false"]


@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_acknowledgements_without_receipts_settle_too(join: Join, name: str, ack: str) -> None:
    client = join()
    client.subscribe(f"/queue/{name}", id="a", ack=ack)
    for number in range(30):
        client.conn.send(f"/queue/{name}", str(number))
    client.bodies(30)
    for headers, _ in client.heard.messages[9:20]:
        client.conn.ack(headers["ack"])
    client.send(f"/queue/{name}", "end")
    client.leave()
    again = join()
    again.subscribe(f"/queue/{name}", ack="client")
    left = [*range(0 if ack == "client-individual" else 9, 9), *range(20, 30)]
    assert again.bodies(len(left) + 1) == [*map(str, left), "end"]


def test_a_refused_delivery_comes_again_or_not(join: Join, name: str) -> None:
    client = join()
    client.subscribe(f"/queue/{name}", ack="client-individual", prefetch_count="1")
    client.send(f"/queue/{name}", "a")
    client.send(f"/queue/{name}", "b")
    client.bodies(1)
    client.refuse(0)
    assert client.bodies(2) == ["a", "a"], "with one at a time the first one comes again"
    client.refuse(1, requeue="false")
    assert client.bodies(3)[2] == "b"


def test_topics_with_wildcards_and_composite_destinations(join: Join, name: str) -> None:
    client, other = join(), join()
    client.subscribe(f"/topic/{name}.*", id="star")
    client.subscribe(f"/topic/{name}.>", id="rest", ack="client")
    client.subscribe(f"/topic/{name}.a,{name}.b.c", id="two")
    other.send(f"/topic/{name}.a,/topic/{name}.b.c", "x")
    client.bodies(5)
    got = sorted((headers["subscription"], headers["destination"]) for headers, _ in client.heard.messages)
    a, bc = f"/topic/{name}.a", f"/topic/{name}.b.c"
    assert got == [("rest", a), ("rest", bc), ("star", a), ("two", a), ("two", bc)]


def test_a_transaction_is_done_whole_or_not_at_all(join: Join, name: str) -> None:
    client = join()
    client.subscribe(f"/queue/{name}", ack="client-individual")
    client.send(f"/queue/{name}", "before")
    client.bodies(1)
    for number, end in enumerate((client.conn.abort, client.conn.commit)):
        begun = client.conn.begin()
        client.conn.send(f"/queue/{name}", f"inside {number}", headers={"transaction": begun})
        client.conn.ack(client.heard.messages[0][0]["ack"], transaction=begun)
        client.told(lambda receipt, end=end, begun=begun: end(begun, headers={"receipt": receipt}))
    assert client.bodies(2) == ["before", "inside 1"]
    client.leave()
    again = join()
    again.subscribe(f"/queue/{name}", ack="client-individual")
    assert again.bodies(1) == ["inside 1"], "the acknowledgement was committed"


def test_durable_subscriptions_keep_what_comes_meanwhile(join: Join, name: str) -> None:
    other, named = join(), {"client-id": f"c-{name}"}
    terms = {"activemq.subscriptionName": "sub"}
    for words, again in ((terms, {}), ({"durable": "true", "auto_delete": "false"}, {"durable": "true"})):
        first = join(headers=named)
        first.subscribe(f"/topic/{name}.d", id="s", ack="client", **words)
        first.leave()
        other.send(f"/topic/{name}.d", "meanwhile", persistent="true")
        second = join(headers=named)
        second.subscribe(f"/topic/{name}.d", id="s", ack="client", **words)
        assert second.bodies(1) == ["meanwhile"]
        headers = again or words
        second.unsubscribe("s", **headers)
        second.leave()
        other.send(f"/topic/{name}.d", "too late", persistent="true")
        third = join(headers=named)
        third.subscribe(f"/topic/{name}.d", id="s", **words)
        other.send(f"/topic/{name}.d", "new", persistent="true")
        assert third.bodies(1) == ["new"], "unsubscribing ended it"
        third.leave()


def test_a_durable_subscription_needs_a_client_id(join: Join, name: str) -> None:
    client = join()
    client.conn.subscribe(f"/topic/{name}", id="s", headers={"activemq.subscriptionName": "sub"})
    assert "needs a client-id" in client.error()[1]


@pytest.mark.parametrize("explicit", [True, False])
def test_replies_come_to_a_temporary_queue(join: Join, name: str, explicit: bool) -> None:
    asking, answering = join(), join()
    answering.subscribe(f"/queue/{name}")
    if explicit:
        asking.subscribe("/temp-queue/answers", id="mine")
    asking.send(f"/queue/{name}", "question", reply_to="/temp-queue/answers", correlation_id="7")
    answering.bodies(1)
    headers = answering.heard.messages[0][0]
    answering.send(headers["reply-to"], "answer", correlation_id=headers["correlation-id"])
    assert asking.bodies(1) == ["answer"]
    got = asking.heard.messages[0][0]
    assert (got["correlation-id"], got["subscription"]) == ("7", "mine" if explicit else "/temp-queue/answers")
    asking.leave()
    answering.conn.send(headers["reply-to"], "too late")  # nobody is there, which is no error


def test_exchanges_and_queues_of_others(join: Join, name: str) -> None:
    client = join()
    client.subscribe(f"/exchange/amq.direct/{name}", id="direct")
    client.subscribe("/exchange/amq.fanout", id="fanout")
    client.send(f"/exchange/amq.direct/{name}", "a")
    client.send("/exchange/amq.fanout", "b")
    client.bodies(2)
    found = {headers["subscription"]: headers["destination"] for headers, _ in client.heard.messages}
    assert found == {"direct": f"/exchange/amq.direct/{name}", "fanout": "/exchange/amq.fanout"}
    client.conn.subscribe(f"/amq/queue/{name}", id="3")
    assert "there is no queue" in client.error()[1]


def test_options_are_headers_of_subscribe(join: Join) -> None:
    other, client = join(), join()
    for symbol, price in (("a", 1), ("b", 2), ("a", 3)):
        other.send("/topic/quotes.x", f'{{"symbol": "{symbol}", "price": {price}}}')
    client.subscribe("/topic/quotes.>", snapshot="true", selector="price > 2", x_headway_offsets="true")
    assert client.bodies(1) == ['{"symbol": "a", "price": 3}'], "the state, as far as it was selected"
    other.send("/topic/quotes.x", '{"symbol": "b", "price": 1}')
    other.send("/topic/quotes.x", '{"symbol": "b", "price": 4}')
    assert client.bodies(2)[1] == '{"symbol": "b", "price": 4}'
    assert int(client.heard.messages[1][0]["x-headway-offset"]) > 0
    wrong = join()
    wrong.conn.subscribe("/topic/quotes.>", id="1", headers={"conflatee": "1s"})
    assert "did you mean conflate?" in wrong.error()[1]


def test_bytes_and_text_come_as_they_were_sent(join: Join, name: str) -> None:
    client = join(auto_decode=False)
    client.subscribe(f"/queue/{name}")
    body = bytes(range(256)) * 100
    client.send(f"/queue/{name}", body)
    client.send(f"/queue/{name}", "grüße")
    assert client.bodies(2) == [body, "grüße".encode()]


def test_expired_records_are_not_delivered(join: Join, name: str) -> None:
    client = join()
    client.send(f"/queue/{name}", "gone", expires="1000")
    client.send(f"/queue/{name}", "stays", expires="0", priority="7", type="t", timestamp="1700000000123")
    client.subscribe(f"/queue/{name}")
    assert client.bodies(1) == ["stays"]
    headers = client.heard.messages[0][0]
    assert (headers["priority"], headers["type"], headers["timestamp"]) == ("7", "t", "1700000000123")


def test_logins(broker: BrokerProcess, join: Join, name: str) -> None:
    join(listener="closed", login="ann", passcode="secret").send(f"/queue/{name}", "x")
    for login in (b"", b"login:ann\npasscode:wrong\n"):
        raw = Raw(broker.ports["closed"] or 0, b"CONNECT\naccept-version:1.2\n" + login + b"\n\0")
        assert raw.connected.startswith(b"ERROR\nmessage:Bad CONNECT\n")
        assert raw.frame() == b""
        raw.close()


def test_versions_that_are_not_spoken(broker: BrokerProcess) -> None:
    raw = Raw(broker.ports["stomp"] or 0, b"CONNECT\naccept-version:2.0\n\n\0")
    assert b"\nversion:1.0,1.1,1.2\n" in raw.connected
    raw.close()


def test_heart_beats_go_both_ways(broker: BrokerProcess, join: Join) -> None:
    client = join(heartbeats=(1000, 1000))
    quiet = Raw(broker.ports["stomp"] or 0, b"CONNECT\naccept-version:1.2\nheart-beat:1000,1000\n\n\0")
    assert b"heart-beat:1000,1000" in quiet.connected
    until(lambda: quiet.sock.recv(100) == b"\n" or True, PATIENCE_S)
    assert b"nothing was heard for" in quiet.frame(), "who is silent is told so"
    assert client.conn.is_connected(), "stomp.py has sent its own and got the broker's"
    quiet.close()


def test_a_frame_that_is_too_large_ends_the_connection(join: Join) -> None:
    client = join(listener="small")
    client.conn.send("/queue/a", "x" * 20_000)
    assert "at most 10000" in client.error()[1]


def test_faults_are_told_with_the_receipt_that_was_asked_for(join: Join, name: str) -> None:
    client = join()
    client.subscribe(f"/queue/{name}", ack="client")
    client.conn.ack("12345", receipt="mine")
    headers, body = client.error()
    assert headers["receipt-id"] == "mine"
    assert "no delivery that waits for it" in body


def test_one_port_for_all(join: Join, name: str) -> None:
    client = join(listener="auto")
    client.subscribe(f"/queue/{name}")
    client.send(f"/queue/{name}", "x")
    assert client.bodies(1) == ["x"]


def test_what_is_durable_outlives_the_broker(start: BrokerFactory, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("journal")
    config = f'[listeners.stomp]\nurl = "stomp://127.0.0.1:0"\n[journal]\npath = "{folder}"\n'
    first = start(config)
    client = Client(first.port, headers={"client-id": "c"})
    client.subscribe("/topic/t", id="s", ack="client", **{"activemq.subscriptionName": "n"})
    client.conn.unsubscribe("s")
    for number in range(20):
        client.send("/queue/q", f"{number}", persistent="true")
    client.send("/topic/t", "kept", persistent="true")
    first.kill()
    second = start(config)
    again = Client(second.port, headers={"client-id": "c"})
    again.subscribe("/queue/q", id="q", ack="client")
    assert again.bodies(20) == [str(number) for number in range(20)], "each had its receipt"
    again.subscribe("/topic/t", id="s", ack="client", **{"activemq.subscriptionName": "n"})
    assert again.bodies(21)[20] == "kept"
    again.leave()
    second.stop()

