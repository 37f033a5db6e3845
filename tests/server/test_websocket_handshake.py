"""Handshakes that open a WebSocket, and what is said to all others."""

from __future__ import annotations

import base64

import pytest
from bench.wires.websocket import request

from headway.server.protocols import SUBPROTOCOLS
from headway.server.websocket.handshake import (
    HEAD_BYTES_MAX,
    HEADERS_MAX,
    Accepted,
    Refusal,
    Request,
    RequestReader,
    Rules,
    allowed,
    answer,
    subprotocol,
)

RULES = Rules(("/mqtt", "/"), None, {"mqtt": "mqtt", "mqttv3.1": "mqtt"})
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
GOOD = (
    "GET /mqtt HTTP/1.1", "Host: broker.example.com:8083", "Upgrade: websocket", "Connection: Upgrade",
    f"Sec-WebSocket-Key: {KEY}", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Protocol: mqtt",
)  # fmt: skip


def opened(*lines: str, rules: Rules = RULES) -> Accepted:
    whole = RequestReader().feed("\r\n".join([*lines, "", ""]).encode("latin-1"))
    assert whole is not None
    return answer(whole[0], rules)


def changed(**lines: str | None) -> list[str]:
    """The good request with other lines, by the names of their headers; None: without."""
    made = list(GOOD)
    for key, line in lines.items():
        name = key.replace("_", "-")
        at = next((i for i, one in enumerate(made) if one.lower().startswith(name + ":")), None)
        if key == "first":
            at = 0
        if at is not None:
            del made[at]
        if line is not None:
            made.insert(at if at is not None else len(made), line)
    return made


def test_the_example_of_the_rfc() -> None:
    accepted = opened(*GOOD)
    assert accepted.protocol == "mqtt"
    lines = accepted.answer.decode().split("\r\n")
    assert lines[0] == "HTTP/1.1 101 Switching Protocols"
    assert "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in lines
    assert "Sec-WebSocket-Protocol: mqtt" in lines
    assert lines[-2:] == ["", ""]


@pytest.mark.parametrize(
    "lines",
    [
        changed(first="GET / HTTP/1.1"),
        changed(first="GET /mqtt?token=1 HTTP/1.1"),
        changed(upgrade="UPGRADE: WebSocket"),
        changed(connection="Connection: keep-alive, upgrade"),
        changed(host="Host: [::1]:8083"),
        changed(content_length="Content-Length: 0"),
        [*GOOD, "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits", "Cookie: a=b", "X-Empty:"],
        [*GOOD, "User-Agent: \xe4\xf6\xfc", "Tab:\tvalue\t"],
    ],
)
def test_what_is_let_in(lines: list[str]) -> None:
    assert opened(*lines).answer.startswith(b"HTTP/1.1 101 ")


def test_known_subprotocol_is_found_among_those_of_all_lines() -> None:
    accepted = opened(*changed(sec_websocket_protocol="Sec-WebSocket-Protocol: chat, mqttv3.1, mqtt"))
    assert b"\r\nSec-WebSocket-Protocol: mqtt\r\n" in accepted.answer
    split = [*changed(sec_websocket_protocol="Sec-WebSocket-Protocol: chat"), "Sec-WebSocket-Protocol: mqtt"]
    assert b"\r\nSec-WebSocket-Protocol: mqtt\r\n" in opened(*split).answer


@pytest.mark.parametrize(
    ("lines", "status", "text"),
    [
        (changed(first="GET /mqtt HTTP/1.0"), 400, "not HTTP/1.1"),
        (changed(first="GET /mqtt HTTP/2.0"), 400, "not HTTP/1.1"),
        (changed(first="GET  /mqtt HTTP/1.1"), 400, "not HTTP/1.1"),
        (changed(first="GET /mqtt HTTP/1.1 "), 400, "not HTTP/1.1"),
        (changed(first="HELLO"), 400, "not HTTP/1.1"),
        (changed(first="GET /other HTTP/1.1"), 404, "the path of the WebSocket is /mqtt"),
        (changed(first="GET http://host/mqtt HTTP/1.1"), 404, "the path"),
        (changed(first="POST /mqtt HTTP/1.1"), 405, "GET"),
        (changed(upgrade=None), 426, "upgrade"),
        (changed(upgrade="Upgrade: h2c"), 426, "upgrade"),
        (changed(connection="Connection: close"), 426, "upgrade"),
        (changed(sec_websocket_version="Sec-WebSocket-Version: 8"), 426, "version 13"),
        (changed(sec_websocket_version=None), 426, "version 13"),
        (changed(sec_websocket_key=None), 400, "Sec-WebSocket-Key"),
        (changed(sec_websocket_key="Sec-WebSocket-Key: short"), 400, "Sec-WebSocket-Key"),
        (changed(sec_websocket_key=f"Sec-WebSocket-Key: {base64.b64encode(bytes(17)).decode()}"), 400, "Key"),
        ([*GOOD, f"Sec-WebSocket-Key: {KEY}"], 400, "more than one"),
        ([*GOOD, "Host: other"], 400, "more than one"),
        ([*GOOD, "Origin: http://a", "Origin: http://localhost"], 400, "more than one"),
        (changed(host=None), 400, "Host"),
        (changed(host="Host: a b"), 400, "Host"),
        (changed(host="Host: user@localhost"), 400, "Host"),
        (changed(host="Host:"), 400, "Host"),
        (changed(sec_websocket_protocol=None), 400, "one of: mqtt, mqttv3.1"),
        (changed(sec_websocket_protocol="Sec-WebSocket-Protocol: amqp"), 400, "one of: mqtt, mqttv3.1"),
        ([*GOOD, "Content-Length: 5"], 400, "body"),
        ([*GOOD, "Transfer-Encoding: chunked"], 400, "body"),
        ([*GOOD, "Bad Name: x"], 400, "malformed"),
        ([*GOOD, "Space : x"], 400, "malformed"),
        ([*GOOD, " folded"], 400, "malformed"),
        ([*GOOD, "X: a\nY: b"], 400, "malformed"),
        ([*GOOD, "X: \x00"], 400, "malformed"),
        ([*GOOD, *["X: y"] * HEADERS_MAX], 431, "headers"),
        ([*GOOD, "X: " + "y" * HEAD_BYTES_MAX], 431, "bytes"),
        ([*GOOD, "Origin: https://evil.example"], 403, "https://evil.example"),
        (["\x16\x03\x01\x02\x00\x01"], 400, "TLS"),
        (["\x10\x0f\x00\x04MQTT"], 400, "not HTTP"),
    ],
)
def test_what_is_refused(lines: list[str], status: int, text: str) -> None:
    with pytest.raises(Refusal, match=text) as refused:
        opened(*lines)
    assert refused.value.status == status
    head, _, body = refused.value.answer().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert b"\r\nContent-Length: %d\r\n" % len(body) in head
    assert text.encode() in body


def test_an_answer_says_what_would_do() -> None:
    for lines, header in (
        (changed(first="POST /mqtt HTTP/1.1"), b"\r\nAllow: GET\r\n"),
        (changed(upgrade=None), b"\r\nUpgrade: websocket\r\n"),
        (changed(sec_websocket_version="Sec-WebSocket-Version: 8"), b"\r\nSec-WebSocket-Version: 13\r\n"),
    ):
        with pytest.raises(Refusal) as refused:
            opened(*lines)
        assert header in refused.value.answer()


def test_a_foreign_text_cannot_begin_a_header_of_the_answer() -> None:
    with pytest.raises(Refusal) as refused:
        opened(*GOOD, "Origin: https://\xe4\x80evil")
    assert refused.value.answer().isascii()


@pytest.mark.parametrize(
    ("origin", "host", "origins", "yes"),
    [
        ("http://localhost:3000", "localhost", None, True),
        ("http://localhost:3000", "127.0.0.1", None, True),
        ("http://127.0.0.1", "localhost", None, True),
        ("http://[::1]:3000", "::1", None, True),
        ("https://192.0.2.7", "192.0.2.7", None, True),
        ("https://192.0.2.8", "192.0.2.7", None, False),
        ("https://evil.example", "127.0.0.1", None, False),
        ("http://evil.example", "evil.example", None, False),  # its name may lead here: DNS rebinding
        ("http://broker.example.com", "broker.example.com", None, False),
        ("http://localhost.evil.example", "localhost", None, False),
        ("null", "localhost", None, False),
        ("file://localhost", "localhost", None, False),
        ("http://[", "localhost", None, False),
        ("", "localhost", None, False),
        ("https://app.example.com", "anything", ("https://app.example.com",), True),
        ("https://APP.example.com", "anything", ("https://app.example.com",), True),
        ("http://app.example.com", "anything", ("https://app.example.com",), False),
        ("https://app.example.com:444", "anything", ("https://app.example.com",), False),
        ("https://app.example.com.evil", "anything", ("https://app.example.com",), False),
        ("https://a.example.com", "anything", ("https://*.example.com",), True),
        ("https://a.b.example.com", "anything", ("https://*.example.com",), True),
        ("https://example.com", "anything", ("https://*.example.com",), False),
        ("https://evilexample.com", "anything", ("https://*.example.com",), False),
        ("https://evil.example", "anything", ("*",), True),
        ("null", "anything", ("null",), True),
        ("http://localhost", "localhost", (), False),
    ],
)
def test_origins(origin: str, host: str, origins: tuple[str, ...] | None, yes: bool) -> None:
    assert allowed(origin, host, origins) is yes


@pytest.mark.parametrize(
    ("origin", "host", "yes"),
    [
        ("https://broker.example.com", "broker.example.com", True),
        ("https://broker.example.com:8443", "broker.example.com", True),
        ("http://broker.example.com", "broker.example.com", False),  # somebody in between may have written that page
        ("https://evil.example", "broker.example.com", False),
        ("https://broker.example.com.evil.example", "broker.example.com", False),
        ("http://localhost:3000", "127.0.0.1", True),
        ("null", "broker.example.com", False),
    ],
)
def test_inside_tls_a_page_of_the_hosts_own_name_is_let_in(origin: str, host: str, yes: bool) -> None:
    assert allowed(origin, host, None, secure=True) is yes
    assert not allowed(origin, host, (), secure=True)


def test_who_is_refused_for_its_origin_reads_the_line_to_write() -> None:
    rules = RULES._replace(listener="web")
    with pytest.raises(Refusal) as refused:
        opened(*GOOD, "Origin: https://app.example.com", rules=rules)
    line = 'origins = ["https://app.example.com"]'
    assert f"{line} in [listeners.web] lets them in" in str(refused.value)
    assert opened(*GOOD, "Origin: https://app.example.com", rules=rules._replace(origins=("https://app.example.com",)))


def test_bytes_behind_the_request_are_handed_back() -> None:
    data, _ = request("/mqtt", "localhost", "mqtt")
    reader = RequestReader()
    assert reader.feed(data[:50]) is None
    whole = reader.feed(data[50:] + b"frames")
    assert whole is not None
    assert whole[1] == b"frames"


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        ("mqttv3.1, mqtt", "mqtt"),
        ("mqtt, mqttv3.1", "mqtt"),
        ("mqttv3.1", "mqttv3.1"),
        ("MQTT", "MQTT"),
        ("v10.stomp, v11.stomp, v12.stomp", "v12.stomp"),
        ("v12.stomp, v11.stomp, v10.stomp", "v12.stomp"),
        ("V11.STOMP, v10.stomp", "V11.STOMP"),
        ("v10.stomp, mqtt, v11.stomp", "v11.stomp"),
        ("chat, mqttv3.1, v12.stomp, mqtt", "mqtt"),
        ("amqp", "amqp"),
    ],
)
def test_client_gets_its_first_protocol_in_the_version_that_the_broker_likes_best(offered: str, chosen: str) -> None:
    rules = RULES._replace(protocols=SUBPROTOCOLS)
    asked = Request("GET", "/mqtt", {"sec-websocket-protocol": [offered]})
    assert subprotocol(asked, rules) == chosen
