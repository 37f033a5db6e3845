"""The console's feed: a frame is made once for all, a stuck console holds nothing, and no turn looks at everybody."""

from __future__ import annotations

import asyncio
import re
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
from aiohttp import ClientSession
from tests.core.stage import STUCK, Stage
from tests.interop.waiting import holds
from tests.server.served import serve

from headway.core.base import Cause, Reason
from headway.core.log import Pool
from headway.core.policy import Sample
from headway.server.admin.api import Admin
from headway.server.config import parse_settings
from headway.server.console import pages
from headway.server.console.console import Console
from headway.server.console.frame import LOOKS, LOOKS_A_TURN, ROWS_MAX, Walk
from headway.server.console.hour import BYTES_MAX, CONSUMERS_MAX, METERS, SAMPLES_MAX, Hour, Terms
from headway.server.console.replay import replay
from headway.server.console.rows import KNOWN_CHARS_MAX, KNOWN_MAX, Known, Name

ASK = b"GET /v1/console/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
MANY = 10_000


async def connect(served: Admin, limit: int = 1 << 20) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(served.url).port, limit=limit)
    writer.write(ASK)
    return reader, writer


def connect_stuck(served: Admin) -> socket.socket:
    """A console that takes nothing until it is read from."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", urlsplit(served.url).port or 0))
    sock.send(ASK)
    return sock


async def frame(reader: asyncio.StreamReader) -> bytes:
    while not (line := await reader.readline()).startswith(b"data: "):
        assert line, "the feed is over"
    return line[len(b"data: "):]


def console_of(served: Admin) -> Console:
    return served._console


def test_twenty_consoles_cost_one_computation(tmp_path: Path) -> None:
    async def play(served: Admin) -> None:
        feed = console_of(served).feed
        feed.period_s = 0.05
        consoles = [await connect(served) for _ in range(20)]
        await holds(lambda: len(feed.viewers) == 20)
        first = [msgspec.json.decode(await frame(reader))["number"] for reader, _ in consoles]
        before = feed.made
        seen = [set[bytes]() for _ in consoles]
        for _ in range(5):
            for frames, (reader, _) in zip(seen, consoles, strict=True):
                frames.add(await frame(reader))
        assert min(first) >= 1
        assert len(set.union(*seen)) <= feed.made - before + 20, "all are told the same bytes"
        assert all(len(frames) == 5 for frames in seen)
        last = msgspec.json.decode(sorted(seen[0])[-1])
        assert last["consoles"] == 20
        assert feed.made <= 5 + 30, "as many frames were made as one console would have needed"
        pool = served._engine.broker.registry.pools[""]
        assert pool.clients_bytes > 20 * len(min(seen[0])), "what consoles may hold is counted"
        for _, writer in consoles:
            writer.close()
        await holds(lambda: not feed.viewers)
        assert pool.clients_bytes == 0

    serve(tmp_path, play)


def test_a_stuck_console_skips_frames_and_holds_no_more_than_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play(served: Admin) -> None:
        feed = console_of(served).feed
        feed.period_s = 0.01

        async def large(*_: object) -> bytes:
            return b'{"number":%d,"text":"%s"}' % (feed.made + 1, b"x" * 200_000)

        monkeypatch.setattr(feed, "_make", large)
        sock = connect_stuck(served)
        await holds(lambda: feed.viewers)
        (viewer,) = feed.viewers.values()
        reader, writer = await connect(served)

        def skipped() -> int:
            return int(str(feed.stats()[0]["skipped"]))

        await holds(lambda: skipped() > 20)
        stuck = feed.stats()[0]
        assert stuck["address"] == "127.0.0.1"
        assert float(str(stuck["lag_s"])) > 0
        given = viewer.frames
        for _ in range(20):
            await frame(reader)
        assert viewer.frames == given, "one that takes nothing is given nothing more"
        server = served._runner.server
        assert server is not None
        held = [one.transport.get_write_buffer_size() for one in server.connections if one.transport is not None]
        assert max(held) < 2 * 210_000, "a frame, and never a queue of them"
        newest = feed.made
        sock.setblocking(False)
        loop, taken = asyncio.get_running_loop(), bytearray()
        while b'"number":%d' % newest not in taken and viewer.frames == given:
            taken += await loop.sock_recv(sock, 1 << 20)
        await holds(lambda: viewer.frames > given)
        assert viewer.last >= newest, "when it reads again it is given the newest"
        sock.close()
        writer.close()

    serve(tmp_path, play)


def test_a_console_that_takes_nothing_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.server.console.feed.STUCK_S", 0.2)

    async def play(served: Admin) -> None:
        feed = console_of(served).feed
        feed.period_s = 0.01

        async def large(*_: object) -> bytes:
            return b'"%s"' % (b"x" * 8_000_000)

        monkeypatch.setattr(feed, "_make", large)
        sock = connect_stuck(served)
        await holds(lambda: feed.viewers)
        await holds(lambda: not feed.viewers)
        sock.close()

    serve(tmp_path, play)


def test_a_console_that_is_cut_has_a_verdict_and_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.server.console.feed.STUCK_S", 2.0)

    async def play(served: Admin) -> None:
        feed = console_of(served).feed
        feed.period_s = 0.05

        async def large(*_: object) -> bytes:
            return b'{"number":%d,"text":"%s"}' % (feed.made + 1, b"x" * (8_000_000 if feed.made < 1 else 2_000))

        monkeypatch.setattr(feed, "_make", large)
        sock = connect_stuck(served)
        await holds(lambda: feed.made > 1)
        others = [await connect(served) for _ in range(20)]
        book = served._engine.broker.verdicts
        while not book.latest:
            for reader, _ in others:
                await frame(reader)
        (verdict,) = book.latest
        assert (verdict.client, verdict.filter) == ("console of 127.0.0.1", "/v1/console/events")
        assert (verdict.cause, verdict.reason, verdict.enforced) == (Cause.APPLICATION, Reason.BLOCKED, True)
        assert verdict.sample.lag_bytes > 1_000_000
        assert verdict.sample.unread_time > 1.9  # the loop's timers count whole milliseconds
        assert verdict.sample.peer_window_closed
        assert "127.0.0.1 was disconnected: it has read nothing for" in verdict.text
        await holds(lambda: len(feed.viewers) == len(others))
        for reader, writer in others:
            await frame(reader)
            writer.close()
        sock.close()
        async with ClientSession() as session:
            async with session.get(f"{served.url}/v1/verdicts") as response:
                (told,) = [msgspec.json.decode(line) for line in (await response.read()).splitlines()]
            async with session.get(f"{served.url}/metrics") as response:
                counted = await response.text()
        assert told["text"] == verdict.text
        series = r"^headway_verdicts_by_cause_total\{.*disconnect.*application.*\} 1\.0$"
        assert re.search(series, counted, re.MULTILINE)

    serve(tmp_path, play)


class Engine:
    """What the walk needs of an engine, over the core's own stage."""

    def __init__(self, stage: Stage) -> None:
        self.broker = stage.broker
        self._stage = stage

    def now(self) -> float:
        return self._stage.now


def walked(stage: Stage) -> Any:
    return Walk(Engine(stage))  # type: ignore[arg-type]


def test_no_turn_looks_at_more_than_its_part_of_ten_thousand() -> None:
    stage = Stage(memory="256MB")
    for number in range(MANY // 100):
        client = stage.client(f"c{number}")
        for filter in range(100):
            client.subscribe(f"t/{filter}", 0)
    walk = walked(stage)
    asyncio.run(walk.round())
    assert walk.looks <= LOOKS, "a round looks at so many, whatever number of them there is"
    assert 0 < walk.looks_a_turn_most <= LOOKS_A_TURN
    rounds = 1
    while sum(walk.ages) < MANY:
        asyncio.run(walk.round())
        rounds += 1
        assert rounds < 2 * MANY / LOOKS
    everybody = sum(len(session.subscriptions) for session in stage.broker.registry.sessions.values())
    assert walk.ages[0] == stage.broker.registry.totals.subscriptions == everybody >= MANY


def test_the_worst_of_very_many_are_found_within_some_rounds() -> None:
    stage = Stage()
    publisher = stage.client("publisher")
    for number in range(3 * LOOKS):
        stage.client(f"c{number}", reads=STUCK, buffer=0).subscribe("t/1" if number % 700 else "t/0", 0)
    publisher.publish("t/0", 1)
    stage.run(20)
    publisher.publish("t/1", 2)
    stage.run(3)
    walk = walked(stage)
    for _ in range(12):
        asyncio.run(walk.round())
        stage.run(1)  # the governor goes on, and with it the watchlist
    assert len(walk.worst) == ROWS_MAX
    assert {one.filter for one in walk.worst[:5]} == {"t/0"}, "the five who have waited longest"
    assert walk.looks_a_turn_most <= LOOKS_A_TURN
    assert not walk.complete


def test_who_is_away_is_no_trouble_and_comes_last() -> None:
    stage = Stage()
    publisher = stage.client("publisher")
    gone = stage.client("gone", expiry_s=3600.0)
    gone.subscribe("t/0", 1)
    stage.broker.disconnect(gone.session, gone.outlet, Reason.CLIENT_GONE, stage.now)
    publisher.publish("t/0", 1)
    stage.run(10)
    stage.client("stuck", reads=STUCK, buffer=0).subscribe("t/1", 0)
    publisher.publish("t/1", 1)
    stage.run(3)
    walk = walked(stage)
    asyncio.run(walk.round())
    assert [one.session.client for one in walk.worst] == ["stuck", "gone"], "though it has waited for longer"
    assert (walk.troubled, walk.away) == (1, 1)


def test_the_last_hour_is_bounded_and_counted() -> None:
    pool = Pool("", 1 << 30, 0)
    hour = Hour(pool)
    before = pool.clients_bytes
    for number in range(2 * CONSUMERS_MAX):
        hour.add(Name(f"c{number}", "t", ""), 1000.0 + number, Sample(lag_records=number))
    for moment in range(2 * SAMPLES_MAX):
        hour.add(Name("c199", "t", ""), 2000.0 + 5 * moment, Sample(lag_age=float(moment)))
    assert len(hour.consumers) == CONSUMERS_MAX
    series = hour.consumers[Name("c199", "t", "")]
    assert len(series) == SAMPLES_MAX
    assert series.as_columns()["lag_age"][-1] == 2 * SAMPLES_MAX - 1
    hour.tidy(2000.0 + 10 * SAMPLES_MAX)
    assert list(hour.consumers) == [Name("c199", "t", "")], "nobody else had a sample in the last hour"
    assert pool.clients_bytes - before == hour.bytes <= 2010 + SAMPLES_MAX * (8 + 4 * len(METERS))
    for number in range(CONSUMERS_MAX):
        long = Name(f"{number}", "x" * 65_000, "")
        hour.add(long, 9200.0, Sample(), Terms(tuple(f"{'y' * 65_000}{at}" for at in range(4))))
    hour.tidy(9201.0)
    assert 0 < hour.bytes <= BYTES_MAX, "names count, too"
    hour.close()
    assert pool.clients_bytes == before


def test_names_are_known_by_keys_of_one_length_and_not_for_ever() -> None:
    known = Known()
    long = Name("x" * 65_535, "y" * 65_535, "")
    key = known.key(long)
    assert len(key) == 12
    assert known.find(key) == long
    for number in range(KNOWN_MAX):
        known.key(Name(str(number), "t", ""))
    assert known.find(key) is None
    for number in range(200):
        known.key(Name(str(number), "z" * 65_000, ""))
    assert known.chars <= KNOWN_CHARS_MAX


BLOCKED = """
[[policy]]
name = "all"
[[policy.rule]]
when = { blocked_time = "20s" }
then = "disconnect"
[[policy.rule]]
when = { lag_records = 1_000_000 }
then = "disconnect"
"""


def test_the_last_hour_is_judged_again_by_other_policies() -> None:
    hour, known = Hour(Pool("", 1 << 30, 0)), Known()
    for moment in range(20):
        stuck = Sample(lag_records=9, lag_bytes=900, lag_age=5.0 * moment, blocked_time=5.0 * moment)
        hour.add(Name("stuck", "t", ""), 1000.0 + 5 * moment, stuck, Terms(("t",)))
        hour.add(Name("well", "t", ""), 1000.0 + 5 * moment, Sample(lag_records=9, lag_age=0.1), Terms(("t",)))
    found = asyncio.run(replay(hour, known, parse_settings(BLOCKED).policies))
    (hit,) = found["hits"]
    assert (hit["client"], hit["rule"], hit["wall_s"]) == ("stuck", 1, 1025.0)
    assert hit["text"] == "no bytes taken for 25 s (limit 20 s)"
    assert (found["consumers"], found["samples"]) == (2, 40)


def luminance(colour: str) -> float:
    parts = (int(colour[at:at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_every_text_has_enough_contrast_in_light_and_in_dark() -> None:
    schemes = re.findall(r":root \{(.*?)\}", pages.pages()["console.css"].body.decode(), re.DOTALL)
    assert len(schemes) == 2
    for scheme in schemes:
        colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", scheme))
        pairs = [(text, ground) for text in ("ink", "soft", "accent", "good", "watch", "bad", "quiet")
                 for ground in ("paper", "sheet")] + [("ink", "good-fill")]
        for text, ground in pairs:
            light, dark = sorted((luminance(colours[text]), luminance(colours[ground])), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (text, ground)


def test_the_files_are_small_and_name_no_other_host() -> None:
    found = pages.pages()
    assert pages.START in found
    assert sum(len(page.body) for page in found.values()) <= 300_000
    for name, page in found.items():
        text = page.body.decode()
        assert "innerHTML" not in text, name
        assert "http" not in text.replace("http://www.w3.org/", ""), f"{name} names a host"
        assert len(text.splitlines()) < 300, f"{name} is too long"
