"""Permissions over MQTT 3.1.1 and 5: each operation allowed, denied, and revoked while connected, with paho."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest
from tests.interop.conftest import BrokerFactory
from tests.interop.pahos import Paho, properties
from tests.interop.permitted import SECRET, config, denied, paho, permission, reload, why
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw
from tests.interop.waiting import until

from headway.wire.mqtt.packets import PubComp, PubRec

DENIED = {4: 0x80, 5: 0x87}
ALICE = {
    "connect": ["alice", "alice-4", "alice-5"], "publish": ["orders/%u/#", "state/%c"],
    "subscribe": ["prices/+", "prices/+/#", "orders/%u/#"],
}  # fmt: skip
BOB = {"publish": ["prices/#"], "subscribe": ["news/#", "$SYS/headway/slow/#"]}


@pytest.fixture(scope="module")
def guarded(start: BrokerFactory) -> BrokerProcess:
    return start(given())


def given(alice: dict[str, list[str]] = ALICE, bob: dict[str, list[str]] = BOB) -> str:
    return config(permission("alice", **alice), permission("bob", **bob))


@pytest.fixture(params=[4, 5], ids=["3.1.1", "5"])
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def alice(guarded: BrokerProcess, version: int) -> Iterator[Paho]:
    client = paho(guarded, "alice", f"alice-{version}", version)
    yield client
    client.close()


@pytest.fixture(autouse=True)
def restored(guarded: BrokerProcess) -> Iterator[None]:
    """What a test has revoked is given back, and nobody's session is left."""
    before = guarded.config.read_text()
    yield
    if guarded.config.read_text() != before:
        reload(guarded, given())
    for version in (4, 5):
        paho(guarded, "alice", f"alice-{version}", version).close()


@pytest.fixture
def root(guarded: BrokerProcess) -> Iterator[Paho]:
    client = paho(guarded, "root")
    assert codes(client, ["#"]) == [0]
    yield client
    client.close()


def codes(client: Paho, filters: list[str], qos: int = 0) -> list[int]:
    return [code.value for code in client.subscribe([(filter, qos) for filter in filters])]


# -- connect -----------------------------------------------------------------------------------------------------------


def test_who_has_no_permission_may_not_connect(guarded: BrokerProcess, version: int) -> None:
    carol = paho(guarded, "carol", f"carol-{version}", version)
    assert carol.connack.value == 0x87  # paho has 3.1.1's 5 as that
    carol.close()
    assert why(guarded, f"carol-{version}") == ["carol may not connect: no [[permission]] is for this user"]


def test_a_client_id_that_is_another_s_is_refused(guarded: BrokerProcess, version: int) -> None:
    thief = paho(guarded, "alice", "bob-1", version)
    assert thief.connack.value == 0x87
    thief.close()
    assert why(guarded, "bob-1")[0] == "alice may not connect as 'bob-1': no [[permission]] allows it"


def test_a_session_is_not_for_another_user(guarded: BrokerProcess, version: int) -> None:
    """Whoever takes its client id gets neither its subscriptions nor what waits for them, and does not end it."""
    kept = {"clean": False} | ({"connect": properties("CONNECT", SessionExpiryInterval=600)} if version == 5 else {})
    bob, client = paho(guarded, "bob", f"shared-{version}", version, **kept), f"shared-{version}"
    assert codes(bob, ["news/#"], 1) == [1]
    bob.client.disconnect()
    until(lambda: bob.ended, what="the end")
    other = paho(guarded, "root", client, version, **kept)
    assert other.connack.value == 0x87
    other.close()
    root = paho(guarded, "root")
    root.publish("news/a", "for bob", 1)
    root.close()
    again = paho(guarded, "bob", client, version, **kept)
    assert again.wait(1)[0].payload == b"for bob"
    again.close()


def test_a_will_is_a_publish(guarded: BrokerProcess, version: int) -> None:
    for topic, code in (("orders/alice/gone", 0), ("orders/bob/gone", 0x87), ("$SYS/headway/slow/x", 0x87)):
        client = paho(guarded, "alice", f"alice-{version}", version, will={"topic": topic, "payload": "x"})
        assert client.connack.value == code, topic
        client.close()


def test_who_may_not_connect_any_more_is_disconnected(guarded: BrokerProcess, alice: Paho, version: int) -> None:
    reload(guarded, config(permission("bob", **BOB)))
    until(lambda: alice.ended, what="the end")
    if version == 5:
        assert alice.ended[0].value == 0x87
    until(lambda: alice.connack.value == 0x87, what="paho tries again, and is refused")


def test_a_user_that_is_removed_is_disconnected(guarded: BrokerProcess, alice: Paho) -> None:
    text = given()
    line = next(line for line in text.splitlines() if line.startswith("alice = "))
    reload(guarded, text.replace(line, ""))
    until(lambda: alice.ended, what="the end")


# -- publish -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_publishes(guarded: BrokerProcess, alice: Paho, root: Paho, version: int, qos: int) -> None:
    """What is denied reaches nobody and is not retained. At QoS 0, and in 3.1.1, the connection simply goes on."""
    before = denied(guarded, "publish")
    acks: list[Any] = []
    alice.client.on_publish = lambda _c, _d, _mid, code, _p: acks.append(code.value)
    topics = ["orders/alice/1", "orders/bob/1", f"state/alice-{version}", "state/bob", "$SYS/headway/slow/alice"]
    for topic in topics:
        alice.publish(topic, f"{qos}", qos, retain=True)
    alice.publish("orders/alice/end", "end", qos)
    until(lambda: any(one.payload == b"end" for one in root.messages), what="the last one")
    assert [one.topic for one in root.messages if one.topic in topics and not one.retain] == [topics[0], topics[2]]
    assert denied(guarded, "publish") >= before + 2
    if qos == 1 and version == 5:
        until(lambda: len(acks) == 6, what="the acknowledgements")
        assert acks == [0, 0x87, 0, 0x87, 0x87, 0]
    late = paho(guarded, "root", "late")
    codes(late, ["#"])
    expected = {topics[0], topics[2]}
    until(lambda: expected <= {one.topic for one in late.messages}, what="what is retained")
    alice.publish("orders/alice/end", "all", qos)
    until(lambda: any(one.payload == b"all" for one in late.messages), what="what comes behind it")
    assert {one.topic for one in late.messages if one.topic in topics} == expected
    late.close()
    assert alice.client.is_connected()
    assert any("alice may not publish to 'orders/bob/1'" in text for text in why(guarded, f"alice-{version}"))


def test_the_codes_of_a_publish_with_two_acknowledgements(guarded: BrokerProcess, version: int) -> None:
    """MQTT 3.1.1 has no code, so the handshake goes on to its end."""
    with Raw(guarded.ports["mqtt"], f"alice-{version}", version, username="alice", password=SECRET.encode()) as alice:
        for topic, code in (("orders/alice/1", 0x10), ("orders/bob/1", 0x87)):
            number = alice.publish(topic, b"x", 2)
            assert alice.expect(PubRec).code == (code if version == 5 else 0)
            if version == 4:
                alice.rel(number)
                alice.expect(PubComp)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_publish_that_is_revoked(
    guarded: BrokerProcess, alice: Paho, root: Paho, qos: int, version: int
) -> None:
    """The answers of before are forgotten."""
    alice.publish("orders/alice/a", "before", qos)
    reload(guarded, given({**ALICE, "publish": ["state/%c"]}))
    alice.publish("orders/alice/a", "after", qos)
    alice.publish(f"state/alice-{version}", "", 1)  # once this is acknowledged, the broker has read the one before it
    reload(guarded, given())
    alice.publish("orders/alice/a", "again", qos)
    until(lambda: any(one.payload == b"again" for one in root.messages), what="the last one")
    assert [one.payload for one in root.messages if one.topic == "orders/alice/a"] == [b"before", b"again"]
    assert alice.client.is_connected()


# -- subscribe ---------------------------------------------------------------------------------------------------------


def test_subscriptions(guarded: BrokerProcess, alice: Paho, version: int) -> None:
    allowed = ["prices/eu", "prices/+", "prices/eu/#", "orders/alice/#", "$share/g/prices/eu"]
    forbidden = ["#", "prices/#", "+/eu", "orders/+/1", "orders/bob/#", "$SYS/#", "$share/g/#", "$share/alice/news/#"]
    assert codes(alice, allowed) == [0] * len(allowed)
    assert codes(alice, forbidden) == [DENIED[version]] * len(forbidden)
    partly = next(text for text in why(guarded, f"alice-{version}") if "'prices/#'" in text)
    assert partly == "alice may not subscribe to 'prices/#', only to a part of it: prices/+, prices/+/#"


def test_nothing_comes_of_what_is_denied(guarded: BrokerProcess, alice: Paho, root: Paho) -> None:
    root.publish("news/old", "retained", retain=True)
    codes(alice, ["news/#", "#", "$share/g/news/#"])
    assert codes(alice, ["prices/+"]) == [0]
    for topic in ("news/new", "prices/eu"):
        root.publish(topic, "x", 1)
    alice.wait(1)
    assert [one.topic for one in alice.messages] == ["prices/eu"]


def test_sys_has_to_be_written_out(guarded: BrokerProcess, version: int) -> None:
    bob = paho(guarded, "bob", f"bob-{version}", version)
    assert codes(bob, ["$SYS/headway/slow/#", "$SYS/#", "$SYS/headway/+/x"]) == [0, DENIED[version], DENIED[version]]
    bob.close()
    root = paho(guarded, "root", f"root-{version}", version)
    assert codes(root, ["$SYS/#"]) == [0]
    root.close()


@pytest.mark.parametrize("filter", ["prices/eu", "$share/group/prices/eu"])
def test_a_subscription_that_is_revoked(guarded: BrokerProcess, version: int, filter: str) -> None:
    """It ends at once; its client hears so (MQTT 5), and gets nothing of it when it comes back to its session."""
    kept = {"clean": False} | ({"connect": properties("CONNECT", SessionExpiryInterval=600)} if version == 5 else {})
    client = f"alice-{version}"
    alice = paho(guarded, "alice", client, version, **kept)
    assert codes(alice, [filter, "orders/alice/only/#"], 1) == [1, 1]
    alice.client.reconnect_delay_set(1, 1)
    reload(guarded, given({**ALICE, "subscribe": ["orders/%u/#"]}))
    until(lambda: alice.ended, what="the end")
    if version == 5:
        assert alice.ended[0].value == 0x87
    until(lambda: alice.client.is_connected(), what="paho is back")
    root = paho(guarded, "root", f"root-{client}")
    root.publish("prices/eu", "denied", 1)
    root.publish("orders/alice/only/1", "allowed", 1)
    assert [one.payload for one in alice.wait(1)] == [b"allowed"]
    guarded.login = f"root:{SECRET}"
    rows = guarded.get(f"/v1/consumers?client={client}")["consumers"]
    assert [row["filter"] for row in rows] == ["orders/alice/only/#"]
    root.close()
    alice.client.disconnect()
    alice.close()


def test_who_is_away_gets_nothing_of_what_was_revoked_meanwhile(guarded: BrokerProcess, version: int) -> None:
    kept = {"clean": False} | ({"connect": properties("CONNECT", SessionExpiryInterval=600)} if version == 5 else {})
    client = f"alice-{version}"
    alice = paho(guarded, "alice", client, version, **kept)
    assert codes(alice, ["prices/eu", "orders/alice/only/#"], 1) == [1, 1]
    alice.close()
    root = paho(guarded, "root", f"root-{client}")
    root.publish("prices/eu", "waits", 1)
    root.publish("orders/alice/only/1", "allowed", 1)
    reload(guarded, given({**ALICE, "subscribe": ["orders/%u/#"]}))
    again = paho(guarded, "alice", client, version, **kept)
    assert [one.payload for one in again.wait(1)] == [b"allowed"]
    root.publish("orders/alice/only/2", "more", 1)
    assert [one.payload for one in again.wait(2)] == [b"allowed", b"more"]
    root.close()
    again.close()


# -- all of it ---------------------------------------------------------------------------------------------------------


def test_permissions_that_come_with_a_reload_hold_for_who_is_connected(start: BrokerFactory) -> None:
    broker = start(config().replace("[[permission]]", "[[permission]]", 1).split("[[permission]]")[0])
    alice, bob = paho(broker, "alice"), paho(broker, "bob")
    assert codes(alice, ["#"]) == codes(bob, ["news/#"]) == [0]
    reload(broker, given())
    until(lambda: alice.ended, what="the end")
    assert alice.ended[0].value == 0x87
    bob.publish("prices/eu", "1", 1)
    assert bob.client.is_connected()
    broker.write(config().split("[[permission]]")[0])
    broker.signal(signal.SIGHUP)
    until(lambda: "has no [[permission]] tables any more" in broker.log.read_text(), what="the refusal")
    assert codes(bob, ["#"]) == [0x87]
    alice.close()
    bob.close()


def test_a_name_that_nobody_checked_is_nobody_s(start: BrokerFactory) -> None:
    """Without users a name is only a label: what permissions say of it is for nobody."""
    broker = start(permission("alice", subscribe=["#"]) + permission(subscribe=["public/#", "of/%u"], publish=["c/%c"]))
    client = Paho(broker.port, "x", user=("alice", "whatever"))
    assert codes(client, ["#", "public/#", "of/alice"]) == [0x87, 0, 0x87]
    client.close()
