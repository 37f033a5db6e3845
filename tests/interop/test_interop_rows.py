"""What the five systems do about slow consumers (docs/FIVE_SYSTEMS.md), over the protocols beside MQTT and AMQP 0-9-1:
a table of what finds a slow consumer, and what is done then. With stomp.py, proton and ActiveMQ's JMS client; pika
publishes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from tests.interop.amqp_pika import Pika, properties
from tests.interop.amqp_slow import policy
from tests.interop.conftest import BrokerFactory
from tests.interop.jms_client import Jms, needs_jms
from tests.interop.openwire_fixtures import LISTENERS
from tests.interop.process import BrokerProcess
from tests.interop.slow_clients import SLOW, Slow
from tests.interop.waiting import until

pytestmark = needs_jms
COUNT = 60
FINDS: dict[str, tuple[str, ...]] = {
    "x1 rate": ('drain_rate = "< 5000B/s"', "drain_rate"),
    "x2 rate, tested again": ('drain_rate = "< 5000B/s"', "drain_rate", 'for = "300ms"\nretries = 3\n'),
    "m4 age": ('lag_age = "200ms"', "lag_age"),
    "q1 depth": ('lag_bytes = "20KB"', "lag_bytes"),
    "q1 count": ("lag_records = 50", "lag_records"),
    "j2 count by prefetch": ('lag_records = "6 x prefetch"', "lag_records"),
    "j3 exhausted prefetch": ('credit_exhausted_time = "200ms"', "credit_exhausted"),
}
DOES = {
    "a3": 'when = { lag_records = 20 }\nthen = { action = "discard", which = "oldest", keep_records = 5 }',
    "conflate": 'when = { lag_records = 20 }\nthen = "conflate"',
    "a2": 'when = { lag_records = 20 }\nthen = "offline"',
    "a1": 'when = { lag_records = 20 }\nuntil = { lag_records = "< 5" }\nthen = "block_publishers"',
    "q3": 'when = { lag_records = 20 }\nthen = "delete_subscription"',
    "a6": 'when = { lag_records = 20 }\nuntil = { lag_records = "< 5" }\nthen = "notify"',
}
WORD = {row: row.replace(" ", "-").replace(",", "") for row in (*FINDS, *DOES)}
"""Of the row's topics."""
KEYED = '[[topic]]\nfilter = "conflate/#"\nkey = "/key"\n[[topic]]\nfilter = "m7/#"\nkey = "/key"\n'
CONFIG = (
    LISTENERS + '[listeners.stomp]\nurl = "stomp://127.0.0.1:0"\n[flap]\nbase = "10ms"\nmax = "10ms"\n' + KEYED
    + "".join(
        policy(row, f"{WORD[row]}/#", f'when = {{ {when} }}\n{"".join(more)}then = "disconnect"')
        for row, (when, _, *more) in FINDS.items()
    )
    + "".join(policy(row, f"{WORD[row]}/#", rule) for row, rule in DOES.items())
)  # fmt: skip
PROTOCOLS = pytest.mark.parametrize("protocol", SLOW)
READ_TOPICS = pytest.mark.parametrize("protocol", ["AMQP 1.0", "OpenWire"])
"""A consumer of STOMP that acknowledges has a queue of its own, which is not conflated, and whose gaps are told by
advisories; test_stomp_house.py has one that does not acknowledge."""


@pytest.fixture(scope="module")
def governed(start: BrokerFactory) -> Iterator[BrokerProcess]:
    broker = start(CONFIG)
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def feeder(governed: BrokerProcess) -> Iterator[Pika]:
    pika = Pika(governed.ports["amqp"] or 0)
    yield pika
    pika.close()


Begin = Callable[..., Slow]


@pytest.fixture
def begin(governed: BrokerProcess, jms: Jms, name: str) -> Iterator[Begin]:
    """Begins a consumer of a topic, under the test's name."""
    begun: list[Slow] = []

    def begin_one(protocol: str, topic: str, **options: str) -> Slow:
        begun.append(SLOW[protocol](governed, jms, name, topic, **options))
        return begun[-1]

    yield begin_one
    for one in begun:
        one.close()


def feed(pika: Pika, topic: str, count: int = COUNT, first: int = 0, keys: int = 3) -> list[str]:
    """Publishes records of so many keys, 500 bytes each."""
    bodies = [
        json.dumps({"key": at % keys, "number": at, "fill": "." * 450}) for at in range(first, first + count)
    ]  # fmt: skip
    for body in bodies:
        pika.out.basic_publish("amq.topic", topic, body, properties(content_type="application/json"))
    return bodies


@PROTOCOLS
@pytest.mark.parametrize("row", FINDS)
def test_a_slow_consumer_is_found_and_cut_with_the_sentence_why(
    governed: BrokerProcess, feeder: Pika, begin: Begin, name: str, protocol: str, row: str
) -> None:
    slow = begin(protocol, f"{WORD[row]}.{name}")
    feed(feeder, f"{WORD[row]}.{name}")
    said = slow.told()
    (verdict,) = governed.verdicts(name)
    assert (verdict["reason"], verdict["policy"], verdict["action"]["kind"]) == (FINDS[row][1], row, "disconnect")
    assert verdict["text"] in said
    assert not governed.consumer(name)


@READ_TOPICS
def test_a3_records_are_discarded_and_the_gap_is_told(
    governed: BrokerProcess, feeder: Pika, begin: Begin, name: str, protocol: str
) -> None:
    slow = begin(protocol, f"a3.{name}")
    sent = feed(feeder, f"a3.{name}")
    until(lambda: governed.verdicts(name), what="a verdict")
    until(lambda: governed.consumer(name)["lag_records"] <= 20, what="they are skipped")
    sent += feed(feeder, f"a3.{name}", 1, COUNT)
    got = []
    for one in slow.read():
        got.append(one)
        if one.body == sent[-1]:
            break
    assert len(got) + sum(one.gap_records for one in got) == len(sent), "each came, or was told of"
    assert sum(one.gap_records for one in got) > 20


@READ_TOPICS
def test_who_is_behind_is_conflated(
    governed: BrokerProcess, feeder: Pika, begin: Begin, name: str, protocol: str
) -> None:
    slow = begin(protocol, f"conflate.{name}")
    sent = feed(feeder, f"conflate.{name}")
    until(lambda: governed.verdicts(name), what="a verdict")
    got = []
    for one in slow.read():
        got.append(one.body)
        if one.body == sent[-1]:
            break
    assert len(got) < 20, "what was on its way, and the last of each key"
    assert got[-3:] == sent[-3:]


@PROTOCOLS
def test_a2_what_waits_goes_to_disk_and_comes_from_there(
    governed: BrokerProcess, feeder: Pika, begin: Begin, name: str, protocol: str
) -> None:
    slow = begin(protocol, f"a2.{name}")
    sent = feed(feeder, f"a2.{name}")
    until(lambda: governed.consumer(name)["state"] == "offline", what="it is offline")
    assert [one.body for _, one in zip(sent, slow.read(), strict=False)] == sent
    until(lambda: governed.consumer(name)["state"] == "ok", what="it is back")


@PROTOCOLS
def test_a1_the_producer_waits_until_the_consumer_has_caught_up(
    governed: BrokerProcess, begin: Begin, name: str, protocol: str
) -> None:
    slow = begin(protocol, f"a1.{name}")
    pika = Pika(governed.ports["amqp"] or 0, client_properties={"connection_name": f"{name}-feeder"})
    sent: list[str] = []

    def publish() -> bool:
        bodies = [f"{number}" for number in range(len(sent), len(sent) + 10)]
        for body in bodies:
            pika.channel.basic_publish("amq.topic", f"a1.{name}", body)
        sent.extend(bodies)
        return bool(governed.publisher(f"{name}-feeder").get("paused"))

    until(publish, what="the publisher waits")
    reading = slow.read()
    until(lambda: next(reading).body and not governed.publisher(f"{name}-feeder")["paused"], what="it goes on")
    pika.close()


@PROTOCOLS
def test_q3_the_subscription_is_deleted_and_the_connection_goes_on(
    governed: BrokerProcess, feeder: Pika, begin: Begin, name: str, protocol: str
) -> None:
    """JMS's client removes its consumer when its application turns to it again; until then it is sent nothing more."""
    slow = begin(protocol, f"q3.{name}")
    feed(feeder, f"q3.{name}")
    verdict = until(lambda: governed.verdicts(name), what="a verdict")[0]
    assert verdict["action"]["kind"] == "delete_subscription"
    if protocol == "OpenWire":
        assert verdict["text"] in slow.told()
    else:
        until(lambda: not governed.consumer(name), what="the subscription is gone")


@PROTOCOLS
def test_a6_slow_and_no_longer_slow_are_told(
    governed: BrokerProcess, feeder: Pika, begin: Begin, name: str, protocol: str
) -> None:
    slow = begin(protocol, f"a6.{name}")
    sent = feed(feeder, f"a6.{name}")
    until(lambda: governed.consumer(name)["slow"], what="it is marked slow")
    assert [one.body for _, one in zip(sent, slow.read(), strict=False)] == sent
    until(lambda: not governed.consumer(name)["slow"], what="it is slow no more")


@PROTOCOLS
def test_m7_x5_a_snapshot_and_then_what_comes(
    governed: BrokerProcess, feeder: Pika, begin: Begin, name: str, protocol: str
) -> None:
    """Whoever was cut comes back with what he has missed."""
    sent = feed(feeder, f"m7.{name}", 10)
    reading = begin(protocol, f"m7.{name}", snapshot="true").read()
    assert [next(reading).body for _ in range(3)] == sent[-3:], "the last of each key, oldest first"
    sent = feed(feeder, f"m7.{name}", 5, 10)
    assert [next(reading).body for _ in sent] == sent
