"""An answer with records that breaks off does not look like a whole one."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.interop.waiting import holds

from headway.server.admin.api import Admin
from headway.server.config.reading import parse_settings
from headway.server.engine.engine import Engine
from headway.server.recorded.offset_range import OffsetRange, RangeRequest
from headway.server.streams import records

ASK = b"GET /v1/topics/t/records?format=json HTTP/1.1\r\nHost: localhost\r\n\r\n"
CHUNK = b"x" * 1_000_000
CHUNKS = 40
PATIENCE_S = 30.0


def serve(folder: Path, monkeypatch: pytest.MonkeyPatch, play: Any) -> None:
    """Serves a topic whose records do not fit into any socket's buffers."""

    def begun(_: object) -> records.Begun:
        chunks: Iterator[records.Chunk] = repeat(CHUNK, CHUNKS)
        return records.Begun(OffsetRange(1, 100, 1, 100), 100, CHUNK, chunks)

    monkeypatch.setattr(records, "_begin", begun)
    asked = records.ReadRequest([], "t", RangeRequest(format="json"), 99)
    monkeypatch.setattr(records.RecordHandlers, "_wanted", lambda *_: asked)

    async def whole() -> None:
        settings = parse_settings(f'[server]\nadmin = "http://127.0.0.1:0"\n[pool]\ndisk_path = "{folder}"\n')
        engine = Engine(settings, asyncio.get_running_loop())
        served = Admin(engine)
        await served.start("127.0.0.1", 0)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await play(served)
        finally:
            await served.stop()
            engine.stop()

    asyncio.run(whole())


async def ask(served: Admin) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    sock = socket.create_connection(("127.0.0.1", urlsplit(served.url).port or 0))
    reader, writer = await asyncio.open_connection(sock=sock, limit=1)
    writer.write(ASK)
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


def test_an_answer_that_was_not_read_in_time_does_not_end_like_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "UNREAD_S", 0.05)

    async def play(served: Admin) -> None:
        reader, writer = await ask(served)
        await holds(lambda: served._records._readers)
        await holds(lambda: not served._records._readers)
        data, _ = await read_all(reader)
        assert data.count(b"x") < (CHUNKS + 1) * len(CHUNK), "it was given up"
        assert not data.endswith(b"\r\n0\r\n\r\n"), "a client would take the part for the whole"
        writer.close()

    serve(tmp_path, monkeypatch, play)
