"""A long answer that breaks off does not look like a whole one, and ends with the right to read it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import repeat
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from aiohttp import web
from tests.interop.waiting import holds
from tests.server.served import serve

from headway.core.log import Pool, State
from headway.core.message import Record, compile_key
from headway.core.permission import Identity, Permission
from headway.core.query import KeptOrders, StateQuery
from headway.server.admin import verdicts
from headway.server.admin.api import Admin
from headway.server.config.auth.tables import AdminTable, AuthTable
from headway.server.http import IDENTITY, access
from headway.server.recorded import OffsetRange, RangeRequest
from headway.server.streams import read_right, records, state
from headway.server.streams.read_right import ReadRight
from headway.server.streams.state import QUERIES_PER_CLIENT

CHUNK = b"x" * 1_000_000
CHUNKS = 40


@pytest.fixture
def much(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is more to answer than fits into any socket's buffers."""

    def begun(_: object) -> records.Begun:
        chunks: Iterator[records.Chunk] = repeat(CHUNK, CHUNKS)
        return records.Begun(OffsetRange(1, 100, 1, 100), 100, CHUNK, chunks)

    async def found(*_: object) -> None:
        pass

    monkeypatch.setattr(records, "_begin", begun)

    def wanted(handlers: records.RecordHandlers, request: web.Request) -> records.ReadRequest:
        right = ReadRight(handlers._engine, request[IDENTITY], "t")
        return records.ReadRequest([], "t", right, RangeRequest(format="json"), 99)

    monkeypatch.setattr(records.RecordHandlers, "_wanted", wanted)
    monkeypatch.setattr(verdicts.Verdicts, "_found", found)
    monkeypatch.setattr(verdicts, "_chunks", lambda *_: repeat(CHUNK, CHUNKS))
    for module in (records, verdicts):
        monkeypatch.setattr(module, "UNREAD_S", 0.05)


async def ask(served: Admin, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    sock = socket.create_connection(("127.0.0.1", urlsplit(served.url).port or 0))
    reader, writer = await asyncio.open_connection(sock=sock, limit=1)
    writer.write(f"GET /v1/{path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return reader, writer


async def read_all(reader: asyncio.StreamReader) -> tuple[bytes, bool]:
    """Returns what came, and whether the connection was reset."""
    data = bytearray()
    try:
        while piece := await reader.read(1 << 20):
            data += piece
            if data.endswith(b"\r\n0\r\n\r\n"):
                break
    except ConnectionError:
        return bytes(data), True
    return bytes(data), False


@pytest.mark.parametrize(
    ("path", "under_way"),
    [("topics/t/records?format=json", lambda served: served._records._seats.taken),
     ("verdicts", lambda served: served._verdicts._seats.taken)],
)
@pytest.mark.usefixtures("much")
def test_an_answer_that_was_not_read_in_time_does_not_end_like_a_whole_one(
    tmp_path: Path, path: str, under_way: Callable[[Admin], object]
) -> None:
    async def play(served: Admin) -> None:
        reader, writer = await ask(served, path)
        await holds(lambda: under_way(served))
        await holds(lambda: not under_way(served))
        data, _ = await read_all(reader)
        assert data.count(b"x") < (CHUNKS + 1) * len(CHUNK), "it was given up"
        assert not data.endswith(b"\r\n0\r\n\r\n"), "a client would take the part for the whole"
        writer.close()

    serve(tmp_path, play)


def keyed(served: Admin) -> State:
    """A state that has as much as ``much``."""
    registry = served._engine.broker.registry
    state = State("t/#", compile_key("topic"), Pool("p", 10**9, 0), declared=True)
    registry.router.add_state(state)
    for number in range(CHUNKS):
        registry.sequence += 1
        state.put(Record(f"t/{number}", CHUNK, sequence=registry.sequence))
    return state


@pytest.mark.parametrize(
    ("cause", "says"),
    [
        ("token", "the token by which the client came in has expired"), ("reload", "ann may not subscribe to"),
        ("removal", "ann is no user any more"),
    ],
)
@pytest.mark.parametrize("path", ["topics/t/records?format=json", "state/t/%23?format=jsonl"])
@pytest.mark.usefixtures("much")
def test_an_answer_ends_with_the_right_to_read_it(
    tmp_path: Path, path: str, cause: str, says: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now_s = 1000.0
    ann = Identity("ann", elsewhere=cause == "token", until_s=1010.0)
    monkeypatch.setattr(read_right, "wall_s", lambda: now_s)
    for module in (records, state):
        monkeypatch.setattr(module, "UNREAD_S", 30.0)

    async def who(*_: object) -> Identity:
        return ann

    monkeypatch.setattr(access.AccessControl, "_identity", who)

    async def play(served: Admin) -> None:
        nonlocal now_s
        readings = keyed(served).readings
        engine = served._engine
        users = AuthTable.model_construct(users={"ann": "x"}, admin=AdminTable(read=["ann"]))
        engine.settings = replace(
            engine.settings, auth=users, permissions=(Permission(user="ann", subscribe=("t", "t/#")),)
        )
        engine.permissions.reload(engine.settings, 0.0)
        reader, writer = await ask(served, path)
        assert (await reader.readexactly(15)).startswith(b"HTTP/1.1 200 OK")
        if cause == "token":
            now_s = 1010.0
        elif cause == "reload":
            engine.permissions.reload(replace(engine.settings, permissions=(Permission(user="bob"),)), 0.0)
        else:
            engine.permissions.reload(replace(engine.settings, auth=AuthTable()), 0.0)
        data, _ = await read_all(reader)
        assert data.count(b"x") < CHUNKS * len(CHUNK), "it ended before"
        assert not data.endswith(b"\r\n0\r\n\r\n")
        assert says in caplog.text
        await holds(lambda: not readings)
        writer.close()

    with caplog.at_level("INFO", "headway"):
        serve(tmp_path, play)


@pytest.mark.parametrize("options", ["", "&order_by=/n&top=5", "&select=count(*)"])
def test_queries_of_a_state_take_turns_and_hold_up_the_loop_no_more_than_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str
) -> None:
    iteration, steps = 0, list[tuple[int, int]]()
    select = StateQuery._select
    monkeypatch.setattr(
        StateQuery, "_select", lambda self, some: steps.append((iteration, id(self))) or select(self, some)
    )
    monkeypatch.setattr(KeptOrders, "wanted", lambda *_: None)

    async def play(served: Admin) -> None:
        nonlocal iteration
        small = keyed(served)
        for number in range(CHUNKS):
            small.put(Record(f"t/{number}", b"{}", sequence=number + 1))
        where = quote(" OR ".join(f"no{number} = 1" for number in range(250)) + " OR topic LIKE 't/%'")
        clients = [await ask(served, f"state/t/%23?where={where}{options}") for _ in range(QUERIES_PER_CLIENT)]
        while len({query for _, query in steps}) < len(clients) or small.readings:
            iteration += 1
            await asyncio.sleep(0)
        for _, writer in clients:
            writer.close()

    serve(tmp_path, play)
    assert len(steps) >= QUERIES_PER_CLIENT * CHUNKS // 8
    assert len({at for at, _ in steps}) == len(steps), "one step of all together in an iteration"
    among = [query for _, query in steps]
    last = min(len(among) - 1 - among[::-1].index(one) for one in set(among))
    first = max(among.index(one) for one in set(among))
    for at in range(first, last - QUERIES_PER_CLIENT):
        assert len(set(among[at : at + QUERIES_PER_CLIENT])) == QUERIES_PER_CLIENT, "each in turn"


def test_a_state_that_is_asked_only_for_its_headers_is_not_read(tmp_path: Path) -> None:
    async def play(served: Admin) -> None:
        readings = keyed(served).readings
        sock = socket.create_connection(("127.0.0.1", urlsplit(served.url).port or 0))
        reader, writer = await asyncio.open_connection(sock=sock)
        writer.write(b"HEAD /v1/state/t/%23 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert b"Headway-Keys: 40" in await reader.read()
        assert not readings
        writer.close()

    serve(tmp_path, play)
