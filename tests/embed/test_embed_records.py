"""Records in and out of an embedded broker: what arrives is what was published, whoever published it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.embed.stage import LOOPS, MQTT, config, play, turns
from tests.interop.pahos import Paho, properties
from tests.interop.raw import Raw
from tests.interop.waiting import holds

from headway.core.consumer import SubscriptionOptions, Use, known_names, parse_options
from headway.core.message import NO_PROPERTIES, Properties, Run
from headway.core.message import Gap as Skipped
from headway.embed import Broker, Gap, Mark, Record, Refused
from headway.wire.program import Delivered, Frames, ProgramDialect

KEYED = [{"filter": "prices/#", "key": "/symbol"}]


@pytest.mark.parametrize("loop", LOOPS)
def test_what_is_published_arrives(tmp_path: Path, loop: str) -> None:
    async def story() -> None:
        async with Broker(config(tmp_path, topic=KEYED)) as broker:
            prices, everything = broker.subscribe("prices/#"), broker.subscribe("#")
            await broker.publish(
                "prices/a", {"symbol": "A", "bid": 1}, content_type="application/json", response_topic="answers",
                correlation_data=b"\x00\xff", user={"desk": "7"}, expiry=60,
            )  # fmt: skip
            await broker.publish("other", "grüße", qos=0)
            await broker.publish("prices/a", bytearray(b'{"symbol": "A"}'), user=[("delete", "true")])
            first, second = await anext(prices), await anext(prices)
            assert first == Record(
                "prices/a", b'{"symbol":"A","bid":1}', 1, "A", "", 1, False, "application/json", "answers", b"\x00\xff",
                (("desk", "7"),),
            )  # fmt: skip
            assert isinstance(first, Record)
            assert first.json() == {"symbol": "A", "bid": 1}
            assert isinstance(second, Record)
            assert (second.offset, second.event, second.key) == (3, "delete", "A")
            found = [await anext(everything) for _ in range(3)]
            assert [one.topic for one in found if isinstance(one, Record)] == ["prices/a", "other", "prices/a"]
            assert isinstance(found[1], Record)
            assert found[1].text() == "grüße"

    play(story(), loop)


def test_clients_of_other_protocols_and_the_program_reach_each_other(tmp_path: Path) -> None:
    async def story() -> None:
        async with Broker(config(tmp_path, listeners=MQTT)) as broker:
            inside = broker.subscribe("up/#")
            port = int(broker.urls["mqtt"].rpartition(":")[2])
            paho = await asyncio.to_thread(Paho, port, "outside")
            await asyncio.to_thread(paho.subscribe, "down/#", 1)
            paho.client.publish("up/1", b"hello", 1, properties=properties("PUBLISH", UserProperty=("from", "paho")))
            came = await anext(inside)
            assert isinstance(came, Record)
            assert (came.topic, came.payload, came.user) == ("up/1", b"hello", (("from", "paho"),))
            await broker.publish("down/1", b"back", retain=True)
            await holds(lambda: paho.messages)
            assert paho.messages[0].payload == b"back"
            kept, without = broker.subscribe("down/#"), broker.subscribe("down/#", retained=False)
            found = await anext(kept)
            assert isinstance(found, Record)
            assert (found.payload, found.retain) == (b"back", True)
            await broker.publish("down/2", b"next")
            found = await anext(without)
            assert isinstance(found, Record)
            assert found.payload == b"next"
            # Nobody from outside takes the program's name, and with it the program's records.
            impostor = await asyncio.to_thread(Paho, port, inside.client)
            assert impostor.connack.is_failure
            await broker.publish("up/2", b"still here")
            found = await anext(inside)
            assert isinstance(found, Record)
            assert found.payload == b"still here"
            for client in (paho, impostor):
                await asyncio.to_thread(client.close)

    play(story())


# -- options ----------------------------------------------------------------------------------------------------------

SAID: dict[str, tuple[object, str]] = {
    "conflate": ("500ms", "500ms"), "snapshot": (True, "true"), "marks": (True, "true"), "query": (False, "false"),
    "out_of_focus": (True, "yes"), "delta": (True, "1"), "key": ("/symbol", "/symbol"),
    "selector": ("bid > 1", "bid > 1"), "policy": ("mine", "mine"), "from": ("earliest", "earliest"),
    "offsets": (True, "on"), "expiries": (True, "true"), "lease": ("1m", "60s"), "patience": ("5m", "300s"),
    "order_by": ("/bid DESC", "/bid DESC"), "top": (10, "10"), "skip": (5, "5"), "select": ("/bid", "/bid"),
    "group_by": ("/symbol", "/symbol"),
}  # fmt: skip
"""Every option of a subscription: as the program says it, and as a client of any protocol does."""


def test_every_option_of_the_wire_is_one_of_the_program() -> None:
    assert set(SAID) == set(known_names(Use.SUBSCRIPTION))


@pytest.mark.parametrize("name", SAID)
def test_an_option_means_what_it_means_over_the_wire(tmp_path: Path, name: str) -> None:
    """Whether it is granted alone, or refused with what else it takes: the same here and there."""
    said, wire = SAID[name]
    asked: list[SubscriptionOptions] = []

    async def story() -> None:
        async with Broker(config(tmp_path, topic=KEYED, policy=[{"name": "mine", "topics": ["#"]}])) as broker:
            core = broker.running.engine.broker
            granted = core.subscribe
            core.subscribe = lambda session, wanted, now: (  # type: ignore[method-assign]
                asked.append(wanted.options), granted(session, wanted, now)
            )[1]
            with suppress(Refused):  # it takes another one beside it
                broker.subscribe("prices/#", **{"from_" if name == "from" else name: said})
            assert asked == [parse_options([(name, wire)])]

    play(story())


def test_wrong_options_are_refused_in_plain_words(tmp_path: Path) -> None:
    async def story() -> None:
        async with Broker(config(tmp_path)) as broker:
            wrong = {"conflat": "1s", "conflate": "soon", "top": -1, "selector": "bid >", "policy": "nobody"}
            for name, value in wrong.items():
                with pytest.raises(Refused, match=name):
                    broker.subscribe("prices/#", **{name: value})
            with pytest.raises(Refused, match="a/#/b"):
                broker.subscribe("a/#/b")
            for topic in ("a/#", "", "$SYS/mine"):
                with pytest.raises(Refused):
                    await broker.publish(topic, b"x")
            assert [name for name in broker.running.engine.broker.registry.sessions if name != "program"] == []

    play(story())


# -- snapshots --------------------------------------------------------------------------------------------------------


def test_a_snapshot_and_what_follows_it_are_one(tmp_path: Path) -> None:
    """Subscribers come while three tasks publish. Each of them has every key's last record in the end, no record came
    twice, and what came behind the snapshot is newer than it."""

    async def story() -> None:
        async with Broker(config(tmp_path, topic=KEYED)) as broker:
            last: dict[str, int] = {}

            async def publish(part: int) -> None:
                for number in range(400):
                    symbol = f"{part}-{number % 17}"
                    last[symbol] = number
                    await broker.publish("prices/x", {"symbol": symbol, "number": number})
                    if number % 7 == 0:
                        await turns(1)

            async def follow(late: int) -> None:
                await turns(late)
                image: dict[str | None, int] = {}
                offsets: list[int] = []
                upto, live = 0, False
                async for one in broker.subscribe("prices/#", snapshot=True, marks=True):
                    if isinstance(one, Mark):
                        upto, live = int(one.told["offset"]), one.event == "snapshot_end"
                        continue
                    assert isinstance(one, Record)
                    if one.topic == "prices/end":
                        break
                    assert (one.offset > upto) is live
                    offsets.append(one.offset)
                    image[one.key] = one.json()["number"]
                assert len(offsets) == len(set(offsets))
                assert image == last

            readers = [asyncio.create_task(follow(late)) for late in (0, 3, 20, 60, 90)]
            await asyncio.gather(*(publish(part) for part in range(3)))
            await broker.publish("prices/end", b"{}")
            await asyncio.gather(*readers)

    play(story())


def test_a_group_shares_its_records(tmp_path: Path) -> None:
    async def story() -> None:
        async with Broker(config(tmp_path)) as broker:
            group = [broker.subscribe("$share/g/t") for _ in range(2)]
            found: list[list[bytes]] = [[], []]

            async def work(number: int) -> None:
                async for one in group[number]:
                    assert isinstance(one, Record)
                    found[number].append(one.payload)

            workers = [asyncio.create_task(work(number)) for number in range(2)]
            for number in range(300):
                await broker.publish("t", b"%d" % number)
            await holds(lambda: sum(map(len, found)) == 300)
            assert all(found)
            assert sorted(found[0] + found[1]) == sorted(b"%d" % number for number in range(300))
            for worker in workers:
                worker.cancel()

    play(story())


def test_a_query_ends_when_it_is_answered(tmp_path: Path) -> None:
    async def story() -> None:
        async with Broker(config(tmp_path, topic=KEYED)) as broker:
            for number in range(3_000):  # more than a subscription takes at a time
                await broker.publish("prices/x", {"symbol": f"S{number}", "pad": "x" * 60})
            found = [one async for one in broker.subscribe("prices/#", query=True)]
            assert [type(one) for one in found] == [Mark, *[Record] * 3_000, Mark]

    play(story())


# -- frames -----------------------------------------------------------------------------------------------------------

_text = st.text(max_size=8)
_properties = st.builds(
    Properties, content_type=st.none() | _text, correlation_data=st.none() | st.binary(max_size=8),
    user=st.lists(st.tuples(_text.filter(lambda one: one not in ("delete", "headway-event", "headway-key")), _text),
                  max_size=2).map(tuple),
) | st.just(NO_PROPERTIES)  # fmt: skip


@given(
    st.lists(st.tuples(_text, st.binary(max_size=40), _properties, st.booleans()), min_size=1, max_size=6),
    st.integers(1, 70),
)
def test_frames_come_out_as_they_went_in_whatever_pieces_they_come_in(
    records: list[tuple[str, bytes, Properties, bool]], piece: int
) -> None:
    dialect, data, wanted = ProgramDialect("topic"), b"", list[Delivered]()
    for number, (topic, payload, said, behind_gap) in enumerate(records, 1):
        encoded = dialect.encode(Run(topic, payload, [len(payload)], [0], properties=said), number).data
        decoded = dialect.decode(encoded)
        assert (decoded.topic, decoded.payload, decoded.properties) == (topic, payload, said)
        if behind_gap:
            with_gap = dialect.with_gap(encoded, Skipped(3, 1, 4, "discarded"))
            assert with_gap is not None
            assert dialect.decode(with_gap) == decoded
            encoded = with_gap
            wanted.append(Gap("f", 3, "discarded", 1, 4))
        data += encoded
        wanted.append(Record(
            topic, payload, number, topic, "", 0, False, said.content_type, said.response_topic,
            said.correlation_data, said.user,
        ))  # fmt: skip
    frames, found = Frames("f"), list[Delivered]()
    for start in range(0, len(data), piece):
        frames.feed(data[start : start + piece])
        while (one := frames.next()) is not None:
            found.append(one)
    assert found == wanted
    assert frames.unread_bytes == 0


WRONG: list[dict[str, Any]] = [
    {"content_type": "\ud800"}, {"content_type": "x" * 70_000}, {"content_type": 5}, {"correlation_data": "text"},
    {"correlation_data": b"x" * 70_000}, {"response_topic": "a/#"}, {"response_topic": "\ud800"}, {"user": {"a": 5}},
    {"user": {"\ud800": "b"}}, {"user": {"a": "b" * 70_000}}, {"user": {"a\0": "b"}}, {"user": [("a",)]},
    {"user": "ab"}, {"expiry": float("nan")}, {"expiry": float("inf")}, {"expiry": -1}, {"expiry": 10**12},
    {"expiry": "5"}, {"qos": 7}, {"qos": -1}, {"qos": "x"}, {"publisher": "\ud800"}, {"publisher": 5},
]  # fmt: skip


def test_what_a_protocol_cannot_carry_is_refused_and_no_client_notices(tmp_path: Path) -> None:
    """It was in the log once, and whoever subscribed over MQTT was cut for it."""

    async def story() -> None:
        async with Broker(config(tmp_path, listeners=MQTT)) as broker:
            port = int(broker.urls["mqtt"].rpartition(":")[2])
            healthy = await asyncio.to_thread(Raw, port, "healthy")
            await asyncio.to_thread(healthy.subscribe, "t")
            for wrong in WRONG:
                with pytest.raises(Refused):
                    await broker.publish("t", b"x", **wrong)
            with pytest.raises(Refused):
                broker.subscribe("t", client="\ud800")
            await broker.publish("t", b"y", user={"a": "b" * 65_535}, content_type="", expiry=5.5)
            assert (await asyncio.to_thread(healthy.message)).payload == b"y"
            healthy.close()

    play(story())
