"""The broker behind the program's own web server: uvicorn, with real clients over real sockets."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import pytest
from bench.errors import PeerFailed
from bench.wires.websocket import TEXT, Frames, frame, upgrade
from tests.embed.stage import config, play, turns
from tests.embed.web import ask, served
from tests.interop.raw import Raw
from tests.interop.waiting import PATIENCE_S, holds
from tests.interop.web import WebRaw
from tests.passwords import cheap_hash

from headway.embed import Broker
from headway.server.loop import memory_rss_bytes

KEYED = [{"filter": "k/#", "key": "topic"}]
PAYLOAD = b"x" * 1_000


class Page(WebRaw):
    """A client of the mounted WebSocket."""

    def opened(self, port: int) -> None:
        self.frames = Frames(upgrade(self.sock, "/mqtt", f"127.0.0.1:{port}", "mqtt"))


def test_pages_that_do_not_read_cost_the_program_nothing(tmp_path: Path) -> None:
    """Ten of them, and 20 MB for each: they are counted in the log once, on disk for the most part, and not in the
    web server. Another page gets every record meanwhile; and they do, when they read again."""
    records = 20_000

    async def story() -> None:
        small = {"pool": {"memory": "4MB", "disk": "100MB", "disk_path": str(tmp_path)}, "policy": []}
        async with Broker(config(tmp_path) | small) as broker, served(broker.asgi()) as port:

            def subscribed(name: str) -> Page:
                page = Page(port, name, receive_buffer=16 * 1024)
                page.subscribe("t")
                return page

            stuck = [await asyncio.to_thread(subscribed, f"stuck-{number}") for number in range(10)]
            good = await asyncio.to_thread(subscribed, "good")
            reading = asyncio.create_task(asyncio.to_thread(read, good, records))
            before = memory_rss_bytes()
            for number in range(records):
                await broker.publish("t", b"%06d" % number + PAYLOAD)
            assert await reading == records
            registry = broker.running.engine.broker.registry
            for page in stuck:
                outlet = registry.sessions[page.client_id].outlet
                assert outlet.blocked
                assert outlet.taken_bytes < 1_000_000  # in the kernel, and in uvicorn's 64 KiB
            assert registry.pools[""].memory_peak_bytes < 5_000_000
            assert memory_rss_bytes() - before < 40_000_000
            assert await asyncio.to_thread(read, stuck[3], records) == records
            for page in (*stuck, good):
                page.close()
            await holds(lambda: not broker.running.engine.connections)

    play(story())


def read(page: Raw, records: int) -> int:
    """Reads records in their order. How many came."""
    for number, message in zip(range(records), page.messages(records), strict=True):
        assert message.payload.startswith(b"%06d" % number)
    return records


def to_the_end(page: Page) -> None:
    """Reads until it is told that the WebSocket ends, and does not keep the server waiting for its answer."""
    while page.closed is None and page.read(PATIENCE_S):
        pass
    page.close()


def test_the_admin_api_is_there_whole(tmp_path: Path) -> None:
    async def story() -> None:
        async with Broker(config(tmp_path, topic=KEYED)) as broker, served(broker.asgi()) as port:
            for number in range(2_000):
                await broker.publish(f"k/{number}", {"number": number})
            status, body, headers = await ask(port, "/v1/broker")
            assert (status, headers["content-type"]) == (200, "application/json")
            assert json.loads(body)["published_records"] >= 2_000
            assert (await ask(port, "/v1/broker", "HEAD"))[:2] == (200, b"")
            status, body, _ = await ask(port, "/v1/state/k%2F%23?where=number+%3E+1000")  # in pieces
            assert len(json.loads(body)["records"]) == 999
            status, body, headers = await ask(port, "/javascript/headway-view.js")
            assert (status, headers["content-type"]) == (200, "text/javascript; charset=utf-8")
            assert b"export class View" in body
            assert b"# TYPE headway_" in (await ask(port, "/metrics"))[1]
            status, body, _ = await ask(port, "/v1/nothing")
            assert status == 404
            assert (await ask(port, "/v1/clients/nobody", "DELETE"))[0] == 404
            policy = b'[[policy]]\nname = "p"\ntopics = ["#"]\n'
            assert (await ask(port, "/v1/preview", "POST", policy))[0] == 200
            halves = iter([policy[:9], policy[9:]])  # chunked
            assert (await ask(port, "/v1/preview", "POST", halves))[0] == 200
            assert (await ask(port, "/v1/preview", "POST", b"no TOML"))[0] == 400

    play(story())


def test_an_event_stream_that_is_not_read_waits_in_the_broker(tmp_path: Path) -> None:
    async def story() -> None:
        small = {"pool": {"memory": "4MB", "disk": "100MB", "disk_path": str(tmp_path)}, "policy": []}
        async with Broker(config(tmp_path, topic=KEYED) | small) as broker, served(broker.asgi()) as port:
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
            sock.connect(("127.0.0.1", port))
            sock.sendall(b"GET /v1/state/k%2F%23 HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
            sessions = broker.running.engine.broker.registry.sessions
            await holds(lambda: any(name.startswith("events/127.0.0.1/") for name in sessions))
            client = next(name for name in sessions if name.startswith("events/"))
            for _ in range(15_000):
                await broker.publish("k/1", PAYLOAD)
            outlet = sessions[client].outlet
            assert outlet.blocked
            assert outlet.taken_bytes < 1_000_000
            assert sessions[client].lagging
            sock.close()
            await holds(lambda: client not in sessions)

    play(story())


def test_the_socket_ends_with_either_side(tmp_path: Path) -> None:
    async def story() -> None:
        async with Broker(config(tmp_path)) as broker, served(broker.asgi()) as port:
            connections = broker.running.engine.connections
            gone = await asyncio.to_thread(Page, port, "gone")
            assert len(connections) == 1
            gone.close()
            await holds(lambda: not connections)
            cut = await asyncio.to_thread(Page, port, "cut")
            assert (await ask(port, "/v1/clients/cut", "DELETE"))[0] == 204
            await asyncio.to_thread(to_the_end, cut)
            assert cut.closed == (1000, "")
            text = await asyncio.to_thread(Page, port, "text")
            text.sock.sendall(frame(b"hello", TEXT))
            await asyncio.to_thread(to_the_end, text)
            assert text.closed == (1003, "")
            await holds(lambda: not connections)
            for path, subprotocol in (("/mqtt", "soap"), ("/elsewhere", "mqtt")):
                with pytest.raises(PeerFailed, match="403"), socket.create_connection(("127.0.0.1", port)) as sock:
                    await asyncio.to_thread(upgrade, sock, path, "127.0.0.1", subprotocol)
            left = await asyncio.to_thread(Page, port, "left")
        await asyncio.to_thread(to_the_end, left)  # the program has ended first
        assert left.closed is not None or left.ended
        assert {task.get_name() for task in asyncio.all_tasks()} == {asyncio.current_task().get_name()}  # type: ignore[union-attr]

    play(story())


def test_users_log_in_here_too(tmp_path: Path) -> None:
    async def story() -> None:
        users = {"users": {"ann": cheap_hash("secret")}}
        async with Broker(config(tmp_path, auth=users)) as broker, served(broker.asgi()) as port:
            assert (await ask(port, "/v1/broker"))[0] == 401
            login = {"Authorization": "Basic YW5uOnNlY3JldA=="}
            assert (await ask(port, "/v1/broker", **login))[0] == 200
            assert (await ask(port, "/v1/broker", **login, Origin="https://evil.example"))[0] == 403
            stranger = await asyncio.to_thread(Page, port, "stranger", granted=False)
            assert stranger.connack.code
            known = await asyncio.to_thread(Page, port, "known", username="ann", password=b"secret")
            for page in (stranger, known):
                page.close()

    play(story())


def test_without_a_broker_there_is_an_answer(tmp_path: Path) -> None:
    async def story() -> None:
        broker = Broker(config(tmp_path))
        async with served(broker.asgi()) as port:
            status, body, _ = await ask(port, "/v1/broker")
            assert status == 503
            assert "does not run" in json.loads(body)["error"]
            with pytest.raises(PeerFailed):
                await asyncio.to_thread(Page, port, "early")
            await broker.start()
            assert (await ask(port, "/v1/broker"))[0] == 200
            await broker.stop()
            assert (await ask(port, "/v1/broker"))[0] == 503

    play(story())


def test_alone_it_lives_with_the_server(tmp_path: Path) -> None:
    async def story() -> None:
        broker = Broker(config(tmp_path))
        told: list[str] = []
        says = iter(["lifespan.startup", "lifespan.shutdown"])

        async def receive() -> dict[str, str]:
            if told == ["lifespan.startup.complete"]:
                await broker.publish("t", b"it runs")
            return {"type": next(says)}

        async def send(message: Any) -> None:
            told.append(message["type"])

        await broker.asgi()({"type": "lifespan"}, receive, send)
        assert told == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
        says, told = iter(["lifespan.startup"]), []
        await broker.asgi()({"type": "lifespan"}, receive, send)  # a broker is started once
        assert told == ["lifespan.startup.failed"]
        await turns()

    play(story())
