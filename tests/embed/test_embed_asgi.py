"""The broker behind the program's own web server: uvicorn, with real clients over real sockets."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from bench.errors import PeerFailed
from bench.wires.websocket import TEXT, Frames, frame, upgrade
from hypothesis import given
from hypothesis import strategies as st
from tests.embed.stage import config, play, turns
from tests.interop.raw import Raw
from tests.interop.waiting import PATIENCE_S, holds
from tests.interop.web import WebRaw

from headway.embed import Broker
from headway.embed.asgi.admittance import Admittance, Came
from headway.embed.asgi.requests import Answer
from headway.server.config import hash_password
from headway.server.loop import memory_rss_bytes
from headway.server.websocket import Refusal

KEYED = [{"filter": "k/#", "key": "topic"}]
PAYLOAD = b"x" * 1_000


class Page(WebRaw):
    """A client of the mounted WebSocket."""

    def opened(self, port: int) -> None:
        self.frames = Frames(upgrade(self.sock, "/mqtt", f"127.0.0.1:{port}", "mqtt"))


@asynccontextmanager
async def served(app: Any, **more: Any) -> AsyncIterator[int]:
    """Serves an application on this loop. Its port. The send buffers of its connections do not grow, as they do where
    the kernel decides."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
    sock.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off", **more))
    server.capture_signals = _no_signals  # type: ignore[method-assign]
    serving = asyncio.create_task(server.serve([sock]))
    await holds(lambda: server.started or serving.done())
    try:
        yield sock.getsockname()[1]
    finally:
        server.should_exit = True
        server.force_exit = True
        await serving


@contextmanager
def _no_signals() -> Iterator[None]:
    yield


Answered = tuple[int, bytes, dict[str, str]]


def asked(port: int, path: str, method: str = "GET", body: Any = None, **headers: str) -> Answered:
    """Status, body and headers of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        chunked = body is not None and not isinstance(body, bytes)
        connection.request(method, path, body, headers, encode_chunked=chunked)
        answer = connection.getresponse()
        return answer.status, answer.read(), {name.lower(): value for name, value in answer.getheaders()}
    finally:
        connection.close()


async def ask(port: int, *arguments: Any, **headers: str) -> Answered:
    return await asyncio.to_thread(asked, port, *arguments, **headers)


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
        users = {"users": {"ann": hash_password("secret")}}
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


# -- who may come in --------------------------------------------------------------------------------------------------

HERE, AWAY = ("127.0.0.1", 5), ("192.0.2.7", 5)
ANYBODY = {"listeners": {"asgi": {"allow_anonymous": True}}}
OWN = {"listeners": {"asgi": {"origins": ["https://shop.example"]}}}
USERS = {"auth": {"users": {"ann": hash_password("x")}}}


@pytest.mark.parametrize(("settings", "client", "host", "origin", "path", "status"), [
    ({}, HERE, "127.0.0.1:8000", None, "/v1/broker", 0),
    ({}, HERE, "localhost", "http://localhost:8000", "/v1/broker", 0),
    ({}, HERE, "localhost", "http://evil.example", "/v1/broker", 403),
    ({}, HERE, "evil.example", None, "/v1/broker", 403),  # its name resolves to this machine
    ({}, HERE, "evil.example", "http://evil.example", "/v1/broker", 403),
    ({}, None, "localhost", None, "/v1/broker", 0),  # at a socket of the file system
    ({}, AWAY, "192.0.2.1", None, "/v1/broker", 403),
    ({}, AWAY, "192.0.2.1", None, "/v1/state/a", 403),
    ({}, AWAY, "192.0.2.1", None, "/javascript/headway-view.js", 0),
    (ANYBODY, AWAY, "192.0.2.1", None, "/v1/state/a", 0),
    (ANYBODY, AWAY, "192.0.2.1", None, "/v1/broker", 403),
    (ANYBODY, AWAY, "192.0.2.1", "http://evil.example", "/v1/state/a", 403),
    (ANYBODY, HERE, "localhost", None, "/v1/broker", 0),
    (OWN, HERE, "localhost", "https://shop.example", "/v1/broker", 0),
    (OWN, HERE, "localhost", "http://localhost", "/v1/broker", 403),
    (USERS, AWAY, "shop.example", None, "/v1/broker", 0),  # it has to log in
    (USERS, AWAY, "shop.example", "http://evil.example", "/v1/broker", 403),
    ({}, HERE, "not a host", None, "/v1/broker", 400),
])  # fmt: skip
def test_who_may_come_in(
    tmp_path: Path, settings: dict[str, Any], client: Any, host: str, origin: str | None, path: str, status: int
) -> None:
    headers = [(b"host", host.encode())] + ([(b"origin", origin.encode())] if origin else [])
    scope = {"type": "http", "root_path": "/headway", "path": f"/headway{path}", "headers": headers, "client": client}

    async def story() -> None:
        async with Broker(config(tmp_path) | settings) as broker:
            engine = broker.running.engine
            assert refused(lambda: Admittance().check_request(engine, Came(scope))) == status
            if path == "/v1/state/a" or status == 400:  # the WebSocket is as open as data are
                web = scope | {"path": "/headway/mqtt", "subprotocols": ["mqtt"]}
                assert refused(lambda: Admittance().check_socket(engine, Came(web))) == status

    play(story())


def test_a_request_stays_one(tmp_path: Path) -> None:
    """A header or a query with line ends in it, as a careless server may let through, becomes no second request; nor
    does a body that is longer than its header says."""

    async def story() -> None:
        async with Broker(config(tmp_path)) as broker:
            engine = broker.running.engine
            honest = {"path": "/v1/state/a", "headers": [(b"host", b"localhost")], "client": HERE}
            split = b"x\r\n\r\nDELETE /v1/clients/a HTTP/1.1"
            headers = {"headers": [(b"host", b"localhost"), (b"x", split)]}
            for wrong in (headers, {"query_string": split}, {"query_string": b"a b"}):
                assert refused(lambda wrong=wrong: Admittance().check_request(engine, Came(honest | wrong))) == 400
            hidden = b"DELETE /v1/clients/program HTTP/1.1\r\nHost: localhost\r\n\r\n"
            gone = asyncio.get_running_loop().create_future()
            sent: list[Any] = []

            async def send(message: Any) -> None:
                sent.append(message)

            scope = honest | {"type": "http", "method": "POST", "path": "/v1/preview",
                              "headers": [(b"host", b"localhost"), (b"content-length", b"2")]}  # fmt: skip
            messages = iter([{"type": "http.request", "body": b"xx" + hidden}])

            async def told() -> Any:
                return next(messages, None) or await gone

            await broker.asgi()(scope, told, send)
            assert [one["status"] for one in sent if "status" in one] == [400]

    play(story())


def refused(check: Callable[[], object]) -> int:
    try:
        check()
    except Refusal as no:
        return no.status
    return 0


# -- answers ----------------------------------------------------------------------------------------------------------

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(("method", "data", "status", "body", "whole"), [
    ("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: y\r\n\r\nhello", 200, b"hello", True),
    ("GET", CHUNKED + b"5\r\nhello\r\n1;x=y\r\n!\r\n0\r\n\r\n", 200, b"hello!", True),
    ("GET", CHUNKED + b"5\r\nhello\r\n1", 200, b"hello", False),
    ("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello", 200, b"hello", False),
    ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", 200, b"", True),
    ("GET", b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", True),
    ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", 304, b"", True),
    ("GET", b"HTTP/1.1 200 OK\r\nConte", None, b"", False),
])  # fmt: skip
@given(piece=st.integers(1, 60))
def test_an_answer_is_read_in_any_pieces(
    method: str, data: bytes, status: int | None, body: bytes, whole: bool, piece: int
) -> None:
    answer, messages = Answer(method), []
    for start in range(0, len(data), piece):
        messages += answer.feed(data[start : start + piece])
    assert answer.whole is whole
    assert [one["status"] for one in messages[:1]] == ([] if status is None else [status])
    assert b"".join(one["body"] for one in messages[1:]) == body


def test_sockets_that_come_at_once_are_counted_before_they_are_accepted(tmp_path: Path) -> None:
    """A web server whose ``send`` waits lets others in between."""

    async def story() -> None:
        async with Broker(config(tmp_path, listeners={"asgi": {"connections_max": 5}})) as broker:
            app, over, said = broker.asgi(), asyncio.Event(), list[str]()

            async def come() -> None:
                first = iter([{"type": "websocket.connect"}])

                async def receive() -> Any:
                    for message in first:
                        return message
                    await over.wait()
                    return {"type": "websocket.disconnect"}

                async def send(message: Any) -> None:
                    said.append(message["type"])
                    await turns()

                await app({
                    "type": "websocket", "path": "/mqtt", "headers": [(b"host", b"localhost")],
                    "client": ("127.0.0.1", 1), "subprotocols": ["mqtt"],
                }, receive, send)  # fmt: skip

            tasks = [asyncio.create_task(come()) for _ in range(20)]
            await holds(lambda: len(said) == 20)
            assert len(broker.running.engine.connections) == 5
            assert said.count("websocket.close") == 15
            over.set()
            await asyncio.gather(*tasks)

    play(story())
