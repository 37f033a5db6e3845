"""Greedy clients of the HTTP server: what they ask for at once, ahead of the answers, or without reading these."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections import Counter
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pyarrow as pa
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from tests.interop.waiting import holds
from tests.server.served import serve

from headway.core.permission import NOBODY, Identity
from headway.core.selector import compile_work
from headway.core.selector import selector as building
from headway.server.admin.api import ROWS_BYTES_MAX, Admin
from headway.server.admin.metrics import Listings
from headway.server.connections import TURN_WORK
from headway.server.http import USER, Refusal, Seats, access
from headway.server.http.access import REQUESTS_A_TURN, AccessControl
from headway.server.http.bodies import json_answer
from headway.server.http.http_connection import (
    HEAD_BYTES_MAX,
    HEAD_READ_BYTES,
    HEADERS_MAX,
    HttpConnection,
    StreamTransport,
)
from headway.server.streams import writers
from headway.server.streams.writers import PARTS_AT_ONCE, TOPICS_AT_ONCE
from headway.store.rows import BATCHES_MAX, ROWS, BadRows, check

HEAD = b"GET /v1/queues HTTP/1.1\r\nHost: localhost\r\n"
Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def say(served: Admin, data: bytes, **more: Any) -> Client:
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(served.url).port, **more)
    writer.write(data)
    return reader, writer


async def status(client: Client) -> int:
    reader, writer = client
    try:
        return int((await reader.readline()).split(b" ")[1])
    finally:
        writer.close()


@pytest.mark.parametrize("lines", [
    b"".join(b"a%d: %s\r\n" % (number, b"a" * 6000) for number in range(7)),
    b"".join(b"a%d: 1\r\n" % number for number in range(HEADERS_MAX + 1)),
], ids=["large", "many"])  # fmt: skip
def test_a_head_has_a_limit_of_bytes_and_of_headers(tmp_path: Path, lines: bytes) -> None:
    assert len(lines) > HEAD_BYTES_MAX or lines.count(b"\n") > HEADERS_MAX

    async def play(served: Admin) -> None:
        assert await status(await say(served, HEAD + lines + b"\r\n")) in (400, 431)
        fewer = b"".join(lines.splitlines(keepends=True)[:4])
        assert await status(await say(served, HEAD + fewer + b"\r\n")) == 200

    serve(tmp_path, play)


CHUNKED = b"POST /v1/preview HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
NO_HTTP: dict[str, tuple[bytes, str]] = {
    "long line": (b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\n\r\n", "line or a header is too long: 8190 bytes"),
    "endless line": (b"GET /" + b"x" * 9000, "line or a header is too long: 8190 bytes"),
    "long header": (HEAD + b"a: " + b"x" * 9000 + b"\r\n\r\n", "line or a header is too long: 8190 bytes"),
    "headers": (HEAD + b"a: 1\r\n" * (HEADERS_MAX + 1) + b"\r\n", "Too many headers"),
    "head": (HEAD + b"".join(b"a%d: %s\r\n" % (at, b"a" * 6000) for at in range(7)), "32768 bytes at most"),
    "method": (b"F\0O / HTTP/1.1\r\n\r\n", "Invalid method"), "URL": (b"GET /\0 HTTP/1.1\r\n\r\n", "the URL"),
    "authority": (b"GET http://[::1/x HTTP/1.1\r\nHost: localhost\r\n\r\n", "the URL"),
    "version": (b"GET / HTTP/9.9\r\n\r\n", "Bad status line"), "header": (HEAD + b"a\0: 1\r\n\r\n", "Invalid header"),
    "no host": (b"GET / HTTP/1.1\r\n\r\n", "Missing 'Host' header"), "TLS": (b"\x16\x03\x01\r\n\r\n", "HTTPS traffic"),
    "length": (HEAD + b"Content-Length: x\r\n\r\n", "Content-Length"), "chunk": (CHUNKED + b"zz\r\n", "chunk size"),
    "encoding": (HEAD + b"Transfer-Encoding: zork\r\n\r\n", "Transfer-Encoding"),
}  # fmt: skip


@pytest.mark.parametrize("kind", NO_HTTP)
def test_what_is_no_http_is_answered_with_a_sentence(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    said, text = NO_HTTP[kind]

    async def play(served: Admin) -> None:
        reader, writer = await say(served, said)
        head = await reader.readuntil(b"\r\n\r\n")
        answer = json.loads(await reader.readuntil(b"}"))
        writer.close()
        assert head[9:13] in (b"400 ", b"431 ")
        assert b"Content-Type: application/json" in head
        assert answer.keys() == {"error"}
        assert text in answer["error"]
        assert not any(of_python in answer["error"] for of_python in ("b'", 'b"', "bytearray", "\n"))

    serve(tmp_path, play)
    assert not [one for one in caplog.records if one.name == "headway.admin"]


def test_a_body_that_is_no_http_is_refused_in_a_sentence(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def play(served: Admin) -> None:
        reader, writer = await say(served, CHUNKED.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"))
        await reader.readuntil(b"100 Continue\r\n\r\n")
        writer.write(b"2\r\n{}\r\nzz\r\n")
        await reader.readuntil(b"\r\n\r\n")
        assert json.loads(await reader.readuntil(b"}")) == {
            "error": "the body broke off, or has another encoding than it says"}
        writer.close()

    serve(tmp_path, play)
    assert not [one for one in caplog.records if one.name == "headway.admin"]


def test_a_body_is_no_head(tmp_path: Path) -> None:
    body = b'"' + b"a" * 6 * HEAD_BYTES_MAX + b'"'
    head = b"POST /v1/moves HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"

    async def play(served: Admin) -> None:
        reader, writer = await say(served, (head % len(body) + body) * 3)
        for _ in range(3):
            assert (await reader.readline()).startswith(b"HTTP/1.1 400 ")  # it is no move
            while (await reader.readline()).strip():
                pass
            await reader.readuntil(b"}")
        writer.close()

    serve(tmp_path, play)


def test_nothing_is_read_while_a_request_waits_for_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    came: Counter[int] = Counter()
    receive, go_on = HttpConnection.data_received, asyncio.Event()

    def data_received(self: HttpConnection, data: bytes) -> None:
        came[id(self)] += len(data)
        receive(self, data)

    async def hangs(*_: object) -> web.Response:
        await go_on.wait()
        return json_answer("there")

    monkeypatch.setattr(HttpConnection, "data_received", data_received)
    monkeypatch.setattr(Admin, "_queues", hangs)
    requests = 100

    async def play(served: Admin) -> None:
        reader, writer = await say(served, (HEAD + b"a: %s\r\n\r\n" % (b"a" * 1000)) * requests)
        await holds(lambda: came)
        for _ in range(200):  # what may be read is read in some of these turns
            await asyncio.sleep(0)
        assert sum(came.values()) <= 2 * HEAD_READ_BYTES
        go_on.set()
        for _ in range(requests):
            await reader.readuntil(b"there")
        writer.close()

    serve(tmp_path, play)


def test_requests_that_come_at_once_begin_in_several_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: Counter[int] = Counter()

    async def identity(self: AccessControl, _: web.Request) -> Identity:
        begun[self._engine.turns] += 1
        return NOBODY

    monkeypatch.setattr(AccessControl, "_identity", identity)

    async def play(served: Admin) -> None:
        loop = served._engine.loop
        monkeypatch.setattr(served._engine, "turn_soon", lambda: loop.call_later(0.01, served._engine._turn))
        clients = [await say(served, HEAD + b"\r\n") for _ in range(3 * REQUESTS_A_TURN)]
        assert [await status(one) for one in clients] == [200] * len(clients)
        assert begun.total() == len(clients)
        assert max(begun.values()) <= REQUESTS_A_TURN

    serve(tmp_path, play)


def test_a_large_answer_that_many_wait_for_is_in_memory_once_and_goes_out_over_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They ask at once and share the answer, so all of them have it at once, and read nothing at first."""
    row = b'{"client":"' + b"n" * 3000 + b'"}'  # more than kernels take by themselves
    page = b'{"consumers":[' + b",".join([row] * 3000) + b"]}"
    begun, waiting, send = Counter[int](), list[StreamTransport](), access._send

    async def consumers(_: Listings) -> bytes:
        await asyncio.sleep(0)
        return page

    monkeypatch.setattr(Listings, "consumers", consumers)

    async def play(served: Admin) -> None:
        loop = served._engine.loop

        async def sent(request: web.Request, response: web.Response) -> None:
            begun[served._engine.turns] += 1
            assert isinstance(request.transport, StreamTransport)
            waiting.append(request.transport)
            await send(request, response)

        monkeypatch.setattr(access, "_send", sent)
        monkeypatch.setattr(served._engine, "turn_soon", lambda: loop.call_later(0.01, served._engine._turn))
        clients = [await say(served, HEAD.replace(b"queues", b"consumers") + b"\r\n", limit=1024) for _ in range(5)]
        await holds(lambda: len(waiting) == len(clients))
        await holds(lambda: all(one._out for one in waiting))
        assert {id(piece.obj) for one in waiting for piece in one._out} == {id(page)}
        for reader, writer in clients:
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"200 OK" in head
            assert await reader.readexactly(len(page)) == page
            writer.close()
        assert len(page) > REQUESTS_A_TURN * access.REQUEST_BYTES
        assert set(begun.values()) == {1}, "one in each turn"

    serve(tmp_path, play)


def test_who_leaves_with_the_first_bytes_of_a_body_leaves_no_stack_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The loop finds both at once: its connection is lost before the request is known to be under way."""
    made, over = list[HttpConnection](), list[str]()
    answer, made_of = AccessControl._answer, HttpConnection.connection_made
    monkeypatch.setattr(HttpConnection, "connection_made", lambda self, to: (made.append(self), made_of(self, to)))

    async def answered(control: AccessControl, request: web.Request, handler: Any) -> web.StreamResponse:
        try:
            return await answer(control, request, handler)
        finally:
            over.append(request.path)

    async def play(served: Admin) -> None:
        monkeypatch.setattr(AccessControl, "_answer", answered)
        for path in ("/v1/moves", "/v1/preview", "/v1/console/replay"):
            await say(served, b"")
            await holds(lambda: made)
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            made[0].data_received(f"{head}Content-Length: 9\r\n\r\n{{".encode())
            asyncio.get_running_loop().call_soon(made.pop().connection_lost, None)
            await holds(lambda path=path: path in over)  # type: ignore[misc]

    with caplog.at_level("ERROR"):
        serve(tmp_path, play)
    assert not caplog.records


def test_who_leaves_with_requests_in_a_row_leaves_no_stack_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lost, lose = list[bool](), HttpConnection.connection_lost
    monkeypatch.setattr(HttpConnection, "connection_lost", lambda *about: (lose(*about), lost.append(True)))
    preview = b"POST /v1/preview HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\na = 1"

    async def play(served: Admin) -> None:
        for _ in range(20):
            _, writer = await say(served, 3 * preview)
            writer.close()
        await holds(lambda: len(lost) == 20)
        assert await status(await say(served, HEAD + b"\r\n")) == 200

    with caplog.at_level("ERROR"):
        serve(tmp_path, play)
    assert not caplog.records


@pytest.mark.parametrize(("path", "maker"), [
    ("/metrics", "page"), ("/metrics/consumers", "consumers"), ("/metrics/queues", "queues"),
    ("/v1/consumers", "consumers"), ("/v1/publishers", "publishers"), ("/v1/queues", "queues"), ("/v1/broker", "whole"),
])  # fmt: skip
def test_requests_at_the_same_time_share_one_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, maker: str
) -> None:
    made = 0

    async def play(served: Admin) -> None:
        maker_of: Any = served._metrics if path.startswith("/metrics") else served._listings
        go_on, real = asyncio.Event(), getattr(maker_of, maker)

        async def make() -> Any:
            nonlocal made
            made += 1
            await go_on.wait()
            return await real()

        monkeypatch.setattr(maker_of, maker, make)
        clients = [await say(served, HEAD.replace(b"/v1/queues", path.encode()) + b"\r\n") for _ in range(20)]
        server = served._runner.server
        assert server is not None
        await holds(lambda: server.requests_count == len(clients))
        go_on.set()
        assert [await status(one) for one in clients] == [200] * len(clients)
        assert made == 1

    serve(tmp_path, play)


def test_answers_that_nobody_reads_have_a_limit_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = 8_000_000
    monkeypatch.setattr(access, "ANSWERS_BYTES_MAX", 2 * size)

    async def long(*_: object) -> web.Response:
        return web.Response(body=bytes(size))

    monkeypatch.setattr(Admin, "_queues", long)

    async def play(served: Admin) -> None:
        clients = []
        for number in range(1, 3):
            clients.append(await say(served, HEAD + b"\r\n", limit=1))
            await holds(lambda number=number: served._access._unsent_bytes == number * size)
        assert await status(await say(served, HEAD + b"\r\n")) == 503
        assert await status(await say(served, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")) == 200
        for _, writer in clients:
            writer.transport.abort()
        await holds(lambda: not served._access._unsent_bytes)
        assert await status(await say(served, HEAD + b"\r\n")) == 200

    serve(tmp_path, play)


def test_rows_of_long_names_have_a_limit_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client may have a name of 64 KiB, which is in the rows of all that it has."""

    async def rows(*_: object) -> dict[str, Any]:
        return {"consumers": [{"client": "x" * 60_000}] * 1000, "total": 1000}

    monkeypatch.setattr(Listings, "consumers", rows)

    async def play(served: Admin) -> None:
        for path in (b"/v1/consumers", b"/v1/consumers?client=x"):
            head = HEAD.replace(b"/v1/queues", path)
            reader, writer = await say(served, head + b"Connection: close\r\n\r\n")
            answer = await reader.read()
            writer.close()
            told = json.loads(answer.partition(b"\r\n\r\n")[2])
            assert told["total"] == 1000
            assert len(told["consumers"]) > 10
            assert len(answer) <= ROWS_BYTES_MAX + 100_000

    serve(tmp_path, play)


LONG = " OR ".join(f"a{number} = 1" for number in range(250))
KEYED = '[[topic]]\nfilter = "keyed/#"\nkey = "/id"'


@pytest.mark.parametrize("ending", [" AND b = 2", " AND )"], ids=["good", "bad"])
@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
def test_a_selector_is_compiled_when_the_turn_has_room_for_it_and_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, accept: str
) -> None:
    text, events = f"c{len(accept)} = 1 OR {LONG}{ending}", list[object]()
    read = building.tokens

    def tokens(text: str) -> Any:
        events.append("compiled")
        return read(text)

    monkeypatch.setattr(building, "tokens", tokens)
    path = f"/v1/state/keyed/%23?where={quote(text, safe='=')}"
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n"

    async def play(served: Admin) -> None:
        engine = served._engine
        taken = engine.take_work

        async def take_work(work: int) -> None:
            events.append(work)
            await taken(work)
            assert engine.work_left <= TURN_WORK - work
            events.append("taken")

        monkeypatch.setattr(engine, "take_work", take_work)
        assert await status(await say(served, request.encode())) == (200 if "b" in ending else 400)
        assert events[:3] == [compile_work(text), "taken", "compiled"]

    serve(tmp_path, play, KEYED)


def part(rows: int) -> bytes:
    topics = [f"t/{number}" for number in range(rows)]
    none = [None] * rows
    columns = [topics, none, none, [b"x"] * rows]
    batch = pa.record_batch(
        [pa.array(one, field.type) for one, field in zip(columns, ROWS, strict=True)], schema=ROWS
    )
    sink = BytesIO()
    with pa.ipc.new_stream(sink, ROWS) as stream:
        stream.write_batch(batch)
    return sink.getvalue()


PART = b"POST /v1/writers/%s/parts HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"


def test_parts_of_one_client_that_come_slowly_leave_room_for_others(tmp_path: Path) -> None:
    data = part(1)

    async def play(served: Admin) -> None:
        slow = [await say(served, PART % (b"slow", 1000)) for _ in range(2 * PARTS_AT_ONCE)]
        await holds(lambda: not served._access._silent and len(served._writers._clients) == 1)
        there = await say(served, PART % (b"other", len(data)) + data, local_addr=("127.0.0.2", 0))
        assert await status(there) == 201
        for _, writer in slow:
            writer.transport.abort()
        await holds(lambda: not served._writers._clients)

    serve(tmp_path, play, f'[journal]\npath = "{tmp_path}/journal"')


def test_rights_to_many_topics_of_a_part_are_looked_at_in_several_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, data, asked = 1000, part(1000), list[int]()
    monkeypatch.setattr(writers, "check_right", lambda *args: asked.append(len(args) - 4))

    async def play(served: Admin) -> None:
        assert await status(await say(served, PART % (b"w", len(data)) + data)) == 201
        assert sum(asked) == rows + 1  # with the writer's own name
        assert max(asked) <= TOPICS_AT_ONCE

    serve(tmp_path, play, f'[journal]\npath = "{tmp_path}/journal"')


def test_a_part_has_a_limit_of_batches() -> None:
    sink = BytesIO()
    with pa.ipc.new_stream(sink, ROWS) as stream:
        for _ in range(BATCHES_MAX + 1):
            stream.write_batch(pa.record_batch([pa.array([], field.type) for field in ROWS], schema=ROWS))
    with pytest.raises(BadRows, match="batches"):
        check(sink.getvalue(), 1000)


def test_one_client_has_half_of_the_seats() -> None:
    seats = Seats(4, "searches are under way")
    ann, ben = (make_mocked_request("GET", "/") for _ in range(2))
    ann[USER], ben[USER] = "ann", "ben"
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(seats.seat(ann))
        with pytest.raises(Refusal, match="2 searches are under way for user ann already"), seats.seat(ann):
            pass
        with seats.seat(ben), seats.seat(ben), pytest.raises(Refusal, match="4 searches"), seats.seat(ben):
            pass
        assert seats.taken == 2
    with seats.seat(ann):
        assert seats.taken == 1


def test_bodies_in_an_encoding_are_refused_before_they_are_read(tmp_path: Path) -> None:
    """A bomb of 30 MB was decompressed in one turn, also after it was refused."""
    bomb = zlib.compress(bytes(30_000_000))
    head = b"POST /v1/moves HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    more = b"Content-Encoding: deflate\r\nContent-Length: %d\r\n\r\n" % len(bomb)

    async def play(served: Admin) -> None:
        assert await status(await say(served, head + more + bomb)) == 415

    serve(tmp_path, play)
