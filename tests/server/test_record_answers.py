"""A long answer that breaks off does not look like a whole one."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.interop.waiting import holds
from tests.server.served import serve

from headway.server.admin import verdicts
from headway.server.admin.api import Admin
from headway.server.recorded.offset_range import OffsetRange, RangeRequest
from headway.server.streams import records

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
    asked = records.ReadRequest([], "t", RangeRequest(format="json"), 99)
    monkeypatch.setattr(records.RecordHandlers, "_wanted", lambda *_: asked)
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
    [("topics/t/records?format=json", lambda served: served._records._readers),
     ("verdicts", lambda served: served._verdicts._searches)],
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
