"""Access control is patient, up to a point: silent connections, bodies that do not come, answers that nobody reads."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from aiohttp import web
from tests.interop.waiting import holds
from tests.server.served import serve

from headway.server.admin.api import Admin
from headway.server.http import access, bodies, http_connection
from headway.server.http.bodies import json_answer

ASK = b"GET /v1/broker HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def connect(served: Admin, **more: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", urlsplit(served.url).port, **more)


@pytest.mark.parametrize("sent", [b"", b"G", ASK[:-2]], ids=["nothing", "a letter", "half a request"])
def test_who_asks_for_nothing_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(access, "HEADER_S", 0.05)

    async def play(served: Admin) -> None:
        reader, writer = await connect(served)
        writer.write(sent)
        with suppress(ConnectionResetError):  # what comes too late is not read, so the kernel resets the connection
            assert await reader.read() == b""
        writer.close()

    serve(tmp_path, play)


def test_silent_client_is_let_go_by_a_loop_that_was_held_up_when_it_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time is over before its protocol has a transport."""
    monkeypatch.setattr(access, "HEADER_S", 0.01)
    real = access.AccessControl.connection

    def held_up(self: access.AccessControl, server: web.Server) -> asyncio.BaseProtocol:
        protocol = real(self, server)
        over_s = time.monotonic() + 2 * access.HEADER_S
        while time.monotonic() < over_s:
            pass
        return protocol

    monkeypatch.setattr(access.AccessControl, "connection", held_up)

    async def play(served: Admin) -> None:
        reader, writer = await connect(served)
        assert await reader.read() == b""
        writer.close()

    serve(tmp_path, play)


def test_who_has_asked_and_asks_no_more_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "IDLE_S", 0.05)

    async def play(served: Admin) -> None:
        reader, writer = await connect(served)
        writer.write(ASK + ASK[:-2])
        assert (await reader.read()).count(b"HTTP/1.1 200") == 1
        writer.close()

    serve(tmp_path, play)


def test_a_body_that_does_not_come_ends_the_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies.read_body, "__defaults__", (bodies.BODY_BYTES_MAX, 0.05))

    async def play(served: Admin) -> None:
        reader, writer = await connect(served)
        writer.write(b"POST /v1/preview HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n[")
        assert (await reader.readline()).startswith(b"HTTP/1.1 408 ")
        writer.close()

    serve(tmp_path, play)


def test_an_answer_that_is_not_read_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "UNREAD_S", 0.05)
    async def endless(*_: object) -> web.Response:
        return json_answer("x" * 50_000_000)

    monkeypatch.setattr(Admin, "_queues", endless)

    async def play(served: Admin) -> None:
        reader, writer = await connect(served, limit=1)
        writer.write(ASK.replace(b"broker", b"queues"))
        server = served._runner.server
        assert server is not None
        await holds(lambda: server.requests_count and not server.connections)
        with suppress(ConnectionError):
            assert len(await reader.read(60_000_000)) < 50_000_000
        writer.close()

    serve(tmp_path, play)


def test_a_request_that_holds_up_the_loop_is_put_on_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def holds_up(*_: object) -> web.Response:
        began = time.monotonic()
        while time.monotonic() - began < 0.2:
            pass
        return json_answer([])

    monkeypatch.setattr(Admin, "_queues", holds_up)

    async def play(served: Admin) -> None:
        pulse = served._engine.pulse
        pulse.start(asyncio.get_running_loop())
        reader, writer = await connect(served)
        writer.write(ASK.replace(b"broker", b"queues"))
        await reader.readline()
        await holds(lambda: pulse.late_s["admin"])
        assert pulse.longest_s > 0.1
        assert "admin of /v1/queues" in pulse.longest_words
        writer.close()

    serve(tmp_path, play)


HEALTHZ = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def held_up(*_: object) -> web.Response:
    await asyncio.Event().wait()
    raise AssertionError


async def all_of(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(10):
        return await reader.read()


@pytest.mark.parametrize("says", [b"", b"GET /v1/bro", HEALTHZ, ASK], ids=["nothing", "a-part", "health", "ask"])
def test_idle_connection_makes_room_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: bytes
) -> None:
    monkeypatch.setattr(access, "CONNECTIONS_MAX", 3)

    async def play(served: Admin) -> None:
        held = []
        for _ in range(9):
            held.append(await connect(served))
            held[-1][1].write(says)
            if says in (HEALTHZ, ASK):
                assert (await held[-1][0].readline()).startswith(b"HTTP/1.1 200 ")
        for request in (HEALTHZ, ASK, HEALTHZ):
            reader, writer = await connect(served)
            writer.write(request)
            assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
            writer.close()
        for reader, _ in held[:6]:
            await all_of(reader)
        server = served._runner.server
        assert server is not None
        await holds(lambda: len(server.connections) <= 3)
        for _, writer in held:
            writer.close()

    serve(tmp_path, play)


def test_connections_that_are_gone_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "CONNECTIONS_MAX", 3)

    async def play(served: Admin) -> None:
        for _ in range(50):
            reader, writer = await connect(served)
            writer.write(HEALTHZ)
            assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
            writer.close()
        await holds(lambda: not served._access._idle and not served._access._silent)

    serve(tmp_path, play)


def test_health_and_metrics_are_answered_while_all_connections_are_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "CONNECTIONS_MAX", 3)
    monkeypatch.setattr(access, "RESERVED", 2)
    monkeypatch.setattr(Admin, "_queues", held_up)

    async def play(served: Admin) -> None:
        held = [await connect(served) for _ in range(3)]
        for _, writer in held:
            writer.write(ASK.replace(b"broker", b"queues"))
        await holds(lambda: not served._access._idle)
        idle = [await connect(served) for _ in range(4)]  # nor do idle ones keep the reserved places
        for path in (b"/healthz", b"/metrics", b"/healthz"):
            reader, writer = await connect(served)
            writer.write(HEALTHZ.replace(b"/healthz", path))
            said = await all_of(reader)
            assert said.startswith(b"HTTP/1.1 200 "), said
            writer.close()
        reader, writer = await connect(served)
        writer.write(ASK)
        assert b"3 connections are busy already" in await all_of(reader)
        for _, other in (*held, *idle, (reader, writer)):
            other.close()

    serve(tmp_path, play)
