"""The admin API's gate: who comes in, what for, what cannot be read, and who takes too long."""

from __future__ import annotations

import base64
import http.client
import re
import socket
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from urllib.parse import urlsplit

import pytest
from tests.interop.conftest import BrokerFactory
from tests.interop.pahos import paho
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw
from tests.interop.waiting import PATIENCE_S
from tests.passwords import cheap_hash

from headway.cli.admin import AdminClient, LoginRefused
from headway.client.address import read_admin_url
from headway.core.base.errors import ConfigError
from headway.pipeline.broker.broker_client import BrokerClient
from headway.pipeline.broker.errors import SourceError
from headway.server.config.auth import new_token

TOKEN, DIGEST = new_token()
RECORDED = '[journal]\npath = "{folder}/journal"\n[[topic]]\nfilter = "r/#"\nkeep = "1d"\n'
CHANGES = [
    ("DELETE", "/v1/clients/x"), ("PUT", "/v1/cursors/x"), ("POST", "/v1/cursors/x/leave"), ("DELETE", "/v1/cursors/x"),
    ("POST", "/v1/writers/x/parts"), ("PUT", "/v1/writers/x/batches/1"), ("DELETE", "/v1/writers/x"),
    ("DELETE", "/v1/writers/x/parts/y"),
]  # fmt: skip
LOOKS = [
    ("GET", "/v1/broker"), ("GET", "/v1/consumers"), ("GET", "/v1/publishers"), ("GET", "/v1/queues"),
    ("GET", "/v1/why/x"), ("POST", "/v1/preview"), ("GET", "/metrics"), ("GET", "/v1/topics"),
    ("GET", "/v1/topics/r/records"), ("HEAD", "/v1/topics/r/records"), ("GET", "/nothing/is/here"),
]  # fmt: skip


@cache
def users() -> str:
    """A function, as each password takes a quarter of a second."""
    return f"""
[auth.users]
ann = "{cheap_hash("a")}"
bob = "{cheap_hash("b")}"
carl = "{cheap_hash("c")}"
[auth.tokens]
scraper = "{DIGEST}"
"""


@pytest.fixture(scope="module")
def guarded(start: BrokerFactory, tmp_path_factory: pytest.TempPathFactory) -> BrokerProcess:
    """Who may do what is said."""
    rights = '[auth.admin]\nread = ["ann", "scraper"]\nchange = ["bob"]\n'
    folder = tmp_path_factory.mktemp("kept")
    return start(users() + rights + RECORDED.format(folder=folder), server={"cursors_max": 3, "writers_max": 2})


@pytest.fixture
def asking(guarded: BrokerProcess) -> Iterator[http.client.HTTPConnection]:
    with closing(connect(guarded)) as connection:
        yield connection


def connect(broker: BrokerProcess) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", urlsplit(broker.admin).port, timeout=PATIENCE_S)


def ask(
    connection: http.client.HTTPConnection, method: str, path: str, login: str = "", body: bytes | None = None,
    **headers: str,
) -> tuple[int, bytes]:
    said = {"Authorization": login} if login else {}
    connection.request(method, path, body, said | {name.replace("_", "-"): text for name, text in headers.items()})
    with connection.getresponse() as answer:
        return answer.status, answer.read()


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


@pytest.mark.parametrize("method_path", [*LOOKS, *CHANGES], ids=" ".join)
def test_where_there_are_users_nobody_else_is_answered(
    asking: http.client.HTTPConnection, method_path: tuple[str, str]
) -> None:
    status, body = ask(asking, *method_path)
    assert status == 401
    assert method_path[0] == "HEAD" or b"this broker has users" in body


@pytest.mark.parametrize(
    "login", [
        basic("ann", "b"), basic("dan", "a"), "Bearer x", f"Bearer {DIGEST}", f"Basic {TOKEN}", "Basic !", "Basic /w==",
        "Digest x", basic("scraper", TOKEN), basic("", ""), "Basic \xff", "Bearer \xff",
    ],
    ids=range(12),  # a token is another one in each worker
)  # fmt: skip
def test_nor_who_is_none_of_them(asking: http.client.HTTPConnection, login: str) -> None:
    assert ask(asking, "GET", "/v1/broker", login)[0] == 401


def test_to_read_and_to_change_are_two_rights(asking: http.client.HTTPConnection) -> None:
    for login in (basic("ann", "a"), f"Bearer {TOKEN}", f"bearer  {TOKEN} "):
        for method, path in LOOKS:
            assert ask(asking, method, path, login)[0] in (200, 404)
        for method, path in CHANGES:
            assert ask(asking, method, path, login)[0] == 403, (method, path)
    for method, path in (*LOOKS, *CHANGES):
        assert ask(asking, method, path, basic("bob", "b"))[0] not in (401, 403), (method, path)
        status, body = ask(asking, method, path, basic("carl", "c"))
        assert status == 403
        assert method == "HEAD" or b"[auth.admin]" in body


def test_users_without_rights_may_read(start: BrokerFactory) -> None:
    broker = start(users())
    with closing(connect(broker)) as connection:
        for login in (basic("carl", "c"), f"Bearer {TOKEN}"):
            assert ask(connection, "GET", "/v1/broker", login)[0] == 200
            assert ask(connection, "DELETE", "/v1/clients/x", login)[0] == 403
        assert ask(connection, "GET", "/v1/broker")[0] == 401
    broker.kill()


def test_users_mean_users_on_loopback_too(guarded: BrokerProcess, name: str) -> None:
    with Raw(guarded.port, name, granted=False) as nobody:
        assert nobody.connack.code == 0x87
        nobody.wait_end()
    with paho(guarded.port, name, user=("ann", "a")) as ann:
        assert not ann.connack.is_failure


# -- our own clients ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("login", "environment"), [
        ("ann:a@", {}), (f":{TOKEN}@", {}), ("", {"HEADWAY_USER": "ann", "HEADWAY_PASSWORD": "a"}),
        ("", {"HEADWAY_TOKEN": TOKEN}), ("ann:a@", {"HEADWAY_TOKEN": "of another broker"}),
    ],
    ids=range(5),
)  # fmt: skip
def test_what_we_ask_with_logs_in(
    guarded: BrokerProcess, monkeypatch: pytest.MonkeyPatch, login: str, environment: dict[str, str]
) -> None:
    for name, text in environment.items():
        monkeypatch.setenv(name, text)
    url = read_admin_url(guarded.admin.replace("//", f"//{login}"))
    assert AdminClient(url).broker()["name"] == "headway"
    assert BrokerClient(url, 1.0).offsets("r/#").latest == 1
    with pytest.raises(SourceError, match=r"(ann|scraper) may not change"):
        BrokerClient(url, 1.0).move("c", 1, {"topic": "r/#"})
    for one in (AdminClient(url).url, BrokerClient(url, 1.0).url):
        assert one == guarded.admin


def test_what_we_ask_with_says_how_to_log_in(guarded: BrokerProcess) -> None:
    secret = guarded.admin.replace("//", "//ann:geheim@")
    for url in (guarded.admin, secret):
        with pytest.raises(LoginRefused, match="HEADWAY_USER and HEADWAY_PASSWORD, or HEADWAY_TOKEN") as caught:
            AdminClient(url).consumers()
        with pytest.raises(SourceError, match="HEADWAY_USER and HEADWAY_PASSWORD, or HEADWAY_TOKEN") as seen:
            BrokerClient(read_admin_url(url), 1.0).offsets("r/#")
        assert "geheim" not in f"{caught.value} {seen.value}"
    with pytest.raises(ConfigError, match="HEADWAY_USER is set and HEADWAY_PASSWORD is not"):
        read_admin_url(guarded.admin, {"HEADWAY_USER": "ann"})


# -- limits ------------------------------------------------------------------------------------------------------------


def test_a_user_has_so_many_cursors_and_writers(asking: http.client.HTTPConnection) -> None:
    bob, wish = basic("bob", "b"), b'{"topic": "r/x", "offset": 1}'
    found = [ask(asking, "PUT", f"/v1/cursors/c{number}", bob, wish)[0] for number in range(3)]
    assert found == [200] * 3
    status, body = ask(asking, "PUT", "/v1/cursors/c3", bob, wish)
    assert status == 429
    assert b"DELETE /v1/cursors/NAME" in body
    assert ask(asking, "PUT", "/v1/cursors/c1", bob, wish)[0] == 200
    assert ask(asking, "DELETE", "/v1/cursors/c1", bob)[0] == 204
    assert ask(asking, "PUT", "/v1/cursors/c3", bob, wish)[0] == 200
    batch = b'{"parts": []}'
    assert [ask(asking, "PUT", f"/v1/writers/w{number}/batches/1", bob, batch)[0] for number in range(2)] == [200] * 2
    assert ask(asking, "PUT", "/v1/writers/w2/batches/1", bob, batch)[0] == 429
    assert ask(asking, "PUT", "/v1/writers/w0/batches/1", bob, batch)[0] == 200
    assert ask(asking, "DELETE", "/v1/writers/w0", bob)[0] == 204
    assert ask(asking, "PUT", "/v1/writers/w2/batches/1", bob, batch)[0] == 200


# -- what cannot be read -----------------------------------------------------------------------------------------------

BROKEN = [
    b"GET /v1/broker HTTP/1.1\r\nHost: [::1\r\n\r\n",
    b"GET /v1/broker HTTP/1.1\r\nHost: [x]\r\n\r\n",
    b"GET /v1/broker HTTP/1.1\r\nHost: [::1]x:y\r\n\r\n",
    b"POST /v1/preview HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n\xff\xfe",
    b"POST /v1/preview HTTP/1.1\r\nHost: localhost\r\nContent-Type: a/b; charset=klingon\r\nContent-Length: 1\r\n\r\n#",
    b"POST /v1/preview HTTP/1.1\r\nHost: localhost\r\nContent-Type: a/b; charset=rot13\r\nContent-Length: 1\r\n\r\n#",
    b"POST /v1/preview HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
    b"PUT /v1/cursors/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 12\r\n\r\n{\"topic\":\"\xff\"",
    b"GET /v1/topics/r/records?from=%ff HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"PUT /v1/writers/x/batches/1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n\xff\xff",
]  # fmt: skip


@pytest.mark.parametrize("request_bytes", BROKEN, ids=range(len(BROKEN)))
def test_what_cannot_be_read_is_a_bad_request(recording: BrokerProcess, request_bytes: bytes) -> None:
    """Not a fault of ours."""
    answer = spoken(recording, request_bytes)
    assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.0 400 ")), answer[:300]


@pytest.mark.parametrize(
    "path", [
        "/v1/why/%ff", "/v1/topics/%ff/records", "/v1/why/%00%0d%0a", "/%ff", "/v1/cursors/%ff", "//",
        "/v1/clients/%ff",
    ],
)  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_odd_names_are_not_known(recording: BrokerProcess, method: str, path: str) -> None:
    answer = spoken(recording, f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    assert int(answer.split()[1]) in (400, 404, 405), answer[:300]


@pytest.fixture(scope="module")
def recording(start: BrokerFactory, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Without users. What is wrong with a request is not put on record as a fault of ours."""
    broker = start(RECORDED.format(folder=tmp_path_factory.mktemp("kept")))
    yield broker
    assert "Traceback" not in (log := broker.log.read_text()), log


def spoken(broker: BrokerProcess, request: bytes) -> bytes:
    """What is answered to these very bytes, up to the end of its first line at least."""
    with socket.create_connection(("127.0.0.1", urlsplit(broker.admin).port or 0), timeout=PATIENCE_S) as sock:
        sock.sendall(request)
        answer = b""
        while b"\r\n\r\n" not in answer and (piece := sock.recv(65_536)):
            answer += piece
        return answer


def test_anybody_and_any_page_may_load_the_javascript_client_and_nothing_else(
    asking: http.client.HTTPConnection,
) -> None:
    pages = {"Origin": "https://app.example.com", "Host": "broker.example.com"}
    asking.request("GET", "/javascript/headway-view.js", headers=pages)
    with asking.getresponse() as answer:
        body = answer.read().decode()
        assert (answer.status, answer.headers["Content-Type"]) == (200, "text/javascript; charset=utf-8")
        assert answer.headers["Access-Control-Allow-Origin"] == "*"
    for name in re.findall(r'from "\./([\w-]+\.js)"', body):
        assert ask(asking, "GET", f"/javascript/{name}", **pages)[0] == 200
    for name in ("package.json", "nothing.js", "..%2fview.py", "%2e%2e/view.py"):
        assert ask(asking, "GET", f"/javascript/{name}")[0] in (401, 404)
    for path in ("/javascript/../v1/broker", "/javascript/%2e%2e/v1/broker", "//javascript/../v1/broker"):
        assert ask(asking, "GET", path)[0] == 401
    assert ask(asking, "POST", "/javascript/headway-view.js")[0] == 401
