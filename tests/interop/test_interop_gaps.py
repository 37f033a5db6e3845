"""Slow consumers whose records are conflated or discarded: they are told of each gap, to the last record."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.interop.governed import SMALL, rows
from tests.interop.governed import governed as governed
from tests.interop.pahos import paho, properties
from tests.interop.process import BrokerProcess
from tests.interop.raw import Message, Raw
from tests.interop.waiting import until

from headway.core.message.record import Properties
from headway.wire.mqtt.packets import TopicRequest


def catch_up(broker: BrokerProcess, stuck: Raw, writer: Raw, topic: str, qos: int = 0) -> list[Message]:
    """Read until it is slow no more; then two records that are published now, on which every gap has been told."""
    got: list[Message] = []

    def caught_up() -> bool:
        fresh = stuck.so_far()
        got.extend(fresh)
        for message in fresh if qos else ():
            stuck.ack(message)
        row = broker.consumer(stuck.client_id)
        return not fresh and not row["slow"] and not row["lag_records"]

    until(caught_up, what="it is slow no more")
    for last in (b'{"key":"last","value":9999}', b'{"key":"very last","value":9999}'):
        writer.published(topic, last, properties=Properties(user=(("priority", "9"),)))
        got.append(stuck.message())
        assert got[-1].payload == last
    return got


def test_conflating_a_slow_consumer(governed: BrokerProcess, name: str) -> None:
    topic = f"conflate/{name}"
    with Raw(governed.port, name, **SMALL) as stuck, Raw(governed.port, f"{name}-pub") as writer:
        stuck.subscribed(f"{topic}/+")
        sent = rows(writer, topic, 2000)
        assert until(lambda: governed.verdicts(name))[-1]["action"]["kind"] == "conflate"
        got = catch_up(governed, stuck, writer, f"{topic}/end")
        values = [json.loads(m.payload)["value"] for m in got]
        whole = 0
        while values[whole] == whole:
            whole += 1
        assert whole < 1500  # what was on its way already
        assert values == sorted(values)
        assert {
            json.loads(m.payload)["key"]: json.loads(m.payload)["value"] for m in got if m.topic != f"{topic}/end"
        } == {body["key"]: body["value"] for body in sent}
        gaps = [m.user for m in got if "gap-records" in m.user]
        assert {gap["gap-reason"] for gap in gaps} == {"conflated"}
        assert sum(int(gap["gap-records"]) for gap in gaps) + len(got) == 2002
        rows(writer, topic, 20)
        assert len(stuck.messages(20)) == 20  # back to every record


@pytest.mark.parametrize("which", ["oldest", "newest", "key", "selected", "topics", "lowest"])
@pytest.mark.parametrize("qos", [0, 1])
def test_discarding_is_announced_to_the_last_record(governed: BrokerProcess, name: str, which: str, qos: int) -> None:
    topic = f"{which}/{name}"
    window: dict[str, Any] = SMALL if qos == 0 else {"receive_max": 20}
    with (
        Raw(governed.port, name, **window) as stuck,
        Raw(governed.port, f"{name}-pub") as writer,
        Raw(governed.port) as watcher,
    ):
        watcher.subscribed(f"$SYS/headway/gap/{name}")
        stuck.subscribed(TopicRequest(f"{topic}/+", qos))
        priority = (lambda i: i % 3) if which == "lowest" else None
        if qos:
            for i in range(1000):
                body = json.dumps({"key": f"k{i % 10}", "value": i}).encode()
                more = Properties(user=(("priority", str(i % 3)),)) if which == "lowest" else Properties()
                writer.publish(f"{topic}/{'odd' if i % 2 else 'even'}", body, 1, properties=more)
            writer.published("flood/end")
        else:
            rows(writer, topic, 1000, priority=priority)
        # Its verdicts stay. Where all that waits is discarded, it is slow for a moment only.
        until(lambda: governed.verdicts(name), what="it is held to be slow")
        got = catch_up(governed, stuck, writer, f"{topic}/even", qos)
        values = [json.loads(m.payload)["value"] for m in got]
        assert values == sorted(values)
        gaps = [m.user for m in got if "gap-records" in m.user]
        announced = sum(int(gap["gap-records"]) for gap in gaps)
        assert announced > 0
        assert {gap["gap-reason"] for gap in gaps} == {"discarded" if which != "key" else gaps[0]["gap-reason"]}
        assert announced + len(got) == 1002
        assert sum(governed.consumer(name)["gap_records"].values()) == announced
        skipped = set(range(1000)) - set(values)
        assert all(CHECKS[which](i) for i in skipped), sorted(skipped)[:20]
        if which != "key":
            assert sum(governed.publisher(f"{name}-pub")["lost_records"].values()) == announced
        assert json.loads(watcher.message().payload)["client"] == name


@pytest.mark.parametrize(("which", "left"), [("fifty", 50), ("urgent", 800), ("odd", 2000)])
def test_what_is_discarded_waits_no_more(governed: BrokerProcess, name: str, which: str, left: int) -> None:
    """Though its client takes nothing; and then it is given just what was left."""
    topic, sent, window = f"{which}/{name}", 4000, 5
    with (
        paho(governed.port, name, connect=properties("CONNECT", ReceiveMaximum=window)) as stuck,
        Raw(governed.port, f"{name}-pub") as writer,
    ):
        stuck.client.manual_ack_set(True)
        stuck.subscribe(f"{topic}/+", 1)
        for i in range(sent):
            user = Properties(user=(("priority", str(i * 7 % 10)),))
            writer.publish(f"{topic}/{'odd' if i % 2 else 'even'}", str(i).encode(), 1, properties=user)
        writer.published("flood/end")
        stuck.wait(window)
        late = sent - 3900  # so many may have come after the look; a later one may leave them out as well
        row = until(lambda: (one := governed.consumer(name))["lag_records"] <= left + late and one)
        assert row["lag_records"] >= left - window
        done = 0

        def drained() -> dict[str, Any] | None:
            nonlocal done
            for message in stuck.messages[done:]:
                stuck.client.ack(message.mid, message.qos)
                done += 1
            row = governed.consumer(name)
            return None if row["lag_records"] or row["in_flight"] or done < len(stuck.messages) else row

        gaps = until(drained)["gap_records"]
        numbers = [int(message.payload) for message in stuck.messages]
        assert numbers == sorted(numbers)
        assert gaps == {"discarded": sent - len(numbers)}
        kept = [i for i in numbers[window:] if i < 3900]
        if which == "odd":
            assert not any(i % 2 for i in kept)
        else:
            assert min(i * 7 % 10 for i in kept) >= 8, "the most urgent ones"


CHECKS: dict[str, Callable[[int], bool]] = {
    "oldest": lambda i: i < 950,
    "newest": lambda i: i > 50,
    "key": lambda i: i < 990,
    "selected": lambda i: i < 4000,
    "topics": lambda i: i % 2 == 1,
    "lowest": lambda i: i % 3 < 2 or i < 950,
}
