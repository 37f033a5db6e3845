"""Deletes: which records are, how they are marked, and who is told."""

from __future__ import annotations

import pytest
from bench.wires.packets import encode_publish
from tests.core.stage import STUCK, Client, Stage

from headway.core.log.states import StateTerms
from headway.core.message.keys import compile_key
from headway.core.message.record import Properties, Run
from headway.core.routing.matching.router import marked_parts

TOPIC = '[[topic]]\nfilter = "t/#"\nkey = "%s"\n'
DELETE = ("headway-event", "delete")
User = tuple[tuple[str, str], ...]


def run_of(user: User, *payloads: bytes) -> Run:
    data, ends, bodies = b"", [], []
    for payload in payloads:
        bodies.append(len(data) + 1)
        data += b"-" + payload
        ends.append(len(data))
    return Run("t", data, ends, bodies, "a form", properties=Properties(user=user) if user else Properties())


@pytest.mark.parametrize(
    ("key", "user", "payloads", "parts"),
    [
        ("topic", (), [b"1", b"2"], [((), [b"1", b"2"])]),
        ("topic", (), [b""], [((DELETE, ("headway-key", "t")), [b""])]),
        ("topic", (), [b"1", b"", b"", b"2"],
         [((), [b"1"]), ((DELETE, ("headway-key", "t")), [b"", b""]), ((), [b"2"])]),
        ("/k", (), [b"1", b""], [((), [b"1", b""])]),
        ("/k", (("key", "K"),), [b""], [((("key", "K"), DELETE, ("headway-key", "K")), [b""])]),
        ("/k", (("delete", ""),), [b'{"k":1}', b'{"k":2}'], [((("delete", ""), DELETE), [b'{"k":1}', b'{"k":2}'])]),
        ("/k", (("delete", "true"),), [b""], [((("delete", "true"), DELETE), [b""])]),
        ("/k", (("delete", "False"),), [b"1"], [((("delete", "False"),), [b"1"])]),
        ("property:id", (("id", "7"),), [b""], [((("id", "7"), DELETE, ("headway-key", "7")), [b""])]),
        ("property:id", (), [b""], [((), [b""])]),
        ("topic", (DELETE,), [b"", b"1"], [((DELETE,), [b"", b"1"])]),
    ],
)  # fmt: skip
def test_a_run_in_parts(key: str, user: User, payloads: list[bytes], parts: list[tuple[User, list[bytes]]]) -> None:
    run, index = run_of(user, *payloads), 0
    for (part, start), (marked, expected) in zip(marked_parts(run, compile_key(key)), parts, strict=True):
        assert (part.properties.user, [part.payload(at) for at in range(len(part))]) == (marked, expected)
        assert start == index
        assert (part.form is None) == (part.properties is not run.properties), "marked bytes are written anew"
        index += len(part)


def publish(client: Client, *payloads: bytes, topic: str = "t/a", user: User = ()) -> None:
    data = b"".join(encode_publish(topic, payload, properties=Properties(user=user)) for payload in payloads)
    runs = client.runs(data)
    client.stage.broker.publish(client.session, runs, client.stage.now)


def told(client: Client) -> list[tuple[str, str | None, str | None]]:
    return [(seen.payload.decode(), seen.event, seen.key) for seen in client.seen]


@pytest.mark.parametrize("tombstones", [True, False])
def test_live_conflated_and_late_subscribers(tombstones: bool) -> None:
    stage = Stage(TOPIC % "topic" + f"tombstones = {str(tombstones).lower()}\n")
    live = stage.consumer("live", "t/#")
    old = stage.consumer("old", "t/#", version=4)
    stuck = stage.consumer("stuck", "t/#", options={"conflate": "0", "snapshot": "true"}, reads=STUCK, buffer=0)
    publisher = stage.client("publisher")
    publish(publisher, b"1", b"", topic="t/a")
    publish(publisher, b"2", b"3", topic="t/b")
    stage.turn()
    late = stage.consumer("late", "t/#", options={"snapshot": "true"})
    stuck.reads, stuck.outlet.capacity = float("inf"), 10_000
    stage.broker.writable(stuck.session, stage.now)
    stage.run(1.0)
    event, key = ("delete", "t/a") if tombstones else (None, None)
    assert told(live) == [("1", None, None), ("", event, key), ("2", None, None), ("3", None, None)]
    assert told(old) == [("1", None, None), ("", None, None), ("2", None, None), ("3", None, None)]
    assert told(late) == ([] if tombstones else [("", None, None)]) + [("3", None, None)]
    assert told(stuck)[-2:] == [("", event, key), ("3", None, None)]


def test_a_reload_changes_what_deletes() -> None:
    stage = Stage(TOPIC % "topic")
    (state,) = stage.broker.registry.router.states
    publisher, live = stage.client("publisher"), stage.consumer("live", "t/#")
    publish(publisher, b"")
    stage.broker.declare_states([StateTerms("t/#", tombstones=False)], stage.now)
    stage.run(0.5)
    publish(publisher, b"")
    stage.turn()
    assert [seen.event for seen in live.seen] == ["delete", None]
    assert len(state) == 1
