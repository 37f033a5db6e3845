"""Who may come in through the program's own web server, and that a request stays one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.embed.stage import config, play, turns
from tests.interop.waiting import holds
from tests.passwords import cheap_hash

from headway.embed import Broker
from headway.embed.asgi import Admittance, Came
from headway.server.websocket import Refusal

HERE, AWAY = ("127.0.0.1", 5), ("192.0.2.7", 5)
ANYBODY = {"listeners": {"asgi": {"allow_anonymous": True}}}
OWN = {"listeners": {"asgi": {"origins": ["https://shop.example"]}}}
USERS = {"auth": {"users": {"ann": cheap_hash("x")}}}


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


@pytest.mark.parametrize(("root", "path", "below"), [
    ("", "/v1/x", "/v1/x"),
    ("/headway", "/headway/v1/x", "/v1/x"),
    ("/headway/", "/headway/v1/x", "/v1/x"),
    ("/headway/", "/headway", "/"),
    ("/headway", "/headway/", "/"),
    ("/head", "/headway/v1/x", "/headway/v1/x"),
    ("/headway", "/v1/x", "/v1/x"),
])  # fmt: skip
def test_what_is_below_the_mount(root: str, path: str, below: str) -> None:
    assert Came({"path": path, "root_path": root, "headers": []}).path == below


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
