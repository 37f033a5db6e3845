"""The handshake of a WebSocket (RFC 6455, 4.2): the HTTP request of a client, and the answer to it, without I/O.

Rules:
- A request has ``HEAD_BYTES_MAX`` bytes at most, and no body. Whatever is not strictly HTTP/1.1 is refused.
- A browser sends the *origin* of the page that opens the WebSocket. Without ``origins`` in the configuration, only
  pages of this very host may: their host is the one that the client asked for, and that is an IP address or
  ``localhost``. With TLS it may be a name, if the page came by TLS, too: the certificate has shown the browser that
  this host has the name. In clear a foreign page can have its own name resolve to this host (DNS rebinding).
  Clients that are no browsers send no origin, and are let in.
- The protocol is that of the first subprotocol of the client's that is known here; of its names and versions the client
  gets the one that the broker likes best: ``mqtt``, which MQTT 3.1.1 and 5 demand (6.0), and not ``mqttv3.1``, whose
  version is not spoken here, unless the client offers nothing else; of STOMP the latest. Without one, nobody is let in.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import ipaddress
import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from headway.server.connections import Networks
from headway.server.websocket.deflate import ANSWER, accepts

HEAD_BYTES_MAX = 8192
HEADERS_MAX = 100
END = b"\r\n\r\n"
VERSION = "13"
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_REQUEST_LINE = re.compile(rf"({_TOKEN}) ([!-~]+) HTTP/1\.1")
_HEADER = re.compile(rf"({_TOKEN}):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*?)[ \t]*")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._~-]+)(?::[0-9]{1,5})?")
_STATUS = {
    400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed", 408: "Request Timeout",
    426: "Upgrade Required", 431: "Request Header Fields Too Large",
}  # fmt: skip


class Rules(NamedTuple):
    """Rules of a listener for handshakes."""

    paths: tuple[str, ...]
    origins: tuple[str, ...] | None
    """Origins of pages that are let in; ``*``: all; None: those of this host."""
    protocols: Mapping[str, str]
    """Protocols by the subprotocols that stand for them."""
    listener: str = ""
    secure: bool = False
    """Whether the WebSocket is inside TLS, and not that of a proxy."""
    compression: bool = False
    proxies: Networks = ()
    """Proxies whose X-Forwarded-For counts."""


class Refusal(Exception):
    """The request is refused."""

    def __init__(self, status: int, text: str, *headers: str) -> None:
        super().__init__(text)
        self.status = status
        self.headers = headers

    def answer(self) -> bytes:
        body = f"{self}\n".encode("ascii", "backslashreplace")
        lines = [
            f"HTTP/1.1 {self.status} {_STATUS[self.status]}", *self.headers, "Content-Type: text/plain",
            f"Content-Length: {len(body)}", "X-Content-Type-Options: nosniff", "Connection: close", "", "",
        ]  # fmt: skip
        return "\r\n".join(lines).encode("ascii") + body


class Request(NamedTuple):
    method: str
    path: str
    headers: dict[str, list[str]]
    """Values by name in small letters, in their order."""

    def one(self, name: str) -> str | None:
        """Returns the only value of a header; None: there is none. Raises Refusal."""
        values = self.headers.get(name, ())
        if len(values) > 1:
            raise Refusal(400, f"there is more than one {name}")
        return values[0] if values else None

    def tokens(self, name: str) -> list[str]:
        """Returns the elements of a header that is a list."""
        return [one.strip() for value in self.headers.get(name, ()) for one in value.split(",") if one.strip()]


class Accepted(NamedTuple):
    """The answer to a request that is granted."""

    answer: bytes
    protocol: str
    request: Request
    compression: bool


def parse(head: bytes) -> Request:
    """Parses the head of a request, without the empty line at its end. Raises Refusal."""
    lines = head.decode("latin-1").split("\r\n")
    line = _REQUEST_LINE.fullmatch(lines[0])
    if line is None:
        raise Refusal(400, "the request is not HTTP/1.1")
    if len(lines) > HEADERS_MAX + 1:
        raise Refusal(431, f"there are more than {HEADERS_MAX} headers")
    headers: dict[str, list[str]] = {}
    for text in lines[1:]:
        header = _HEADER.fullmatch(text)
        if header is None:
            raise Refusal(400, "a header is malformed")
        headers.setdefault(header[1].lower(), []).append(header[2])
    return Request(line[1], line[2].partition("?")[0], headers)


def answer(request: Request, rules: Rules) -> Accepted:
    """Returns the answer that opens the WebSocket. Raises Refusal."""
    _check_http(request, rules)
    key = _key(request)
    if request.one("sec-websocket-version") != VERSION:
        text = f"this WebSocket is of version {VERSION}"
        raise Refusal(426, text, f"Sec-WebSocket-Version: {VERSION}", *_UPGRADE)
    check_page(request, rules)
    chosen = subprotocol(request, rules)
    proof = base64.b64encode(hashlib.sha1(key.encode() + _GUID).digest()).decode()
    lines = [
        "HTTP/1.1 101 Switching Protocols", *_UPGRADE, f"Sec-WebSocket-Accept: {proof}",
        f"Sec-WebSocket-Protocol: {chosen}",
    ]  # fmt: skip
    compression = rules.compression and any(accepts(offer) for offer in request.tokens("sec-websocket-extensions"))
    if compression:
        lines.append(f"Sec-WebSocket-Extensions: {ANSWER}")
    return Accepted("\r\n".join([*lines, "", ""]).encode(), rules.protocols[chosen.lower()], request, compression)


def check_page(request: Request, rules: Rules) -> str:
    """Returns the host that the client asked for. Raises Refusal for pages that are not let in."""
    host = _host(request)
    origin = request.one("origin")
    if origin is not None and not allowed(origin, host, rules.origins, secure=rules.secure):
        line = f'origins = ["{origin[:100]}"] in [listeners.{rules.listener}] lets them in'
        raise Refusal(403, f"pages of {origin[:100]} are not let in: {line}")
    return host


def subprotocol(request: Request, rules: Rules) -> str:
    """Returns one of the client's subprotocols, as the client writes it. Raises Refusal."""
    protocols, order = rules.protocols, list(rules.protocols)
    offered = [one for one in request.tokens("sec-websocket-protocol") if one.lower() in protocols]
    if not offered:
        raise Refusal(400, f"the subprotocol must be one of: {', '.join(order)}")
    protocol = protocols[offered[0].lower()]
    alike = [one for one in offered if protocols[one.lower()] == protocol]
    return min(alike, key=lambda one: order.index(one.lower()))


_UPGRADE = ("Upgrade: websocket", "Connection: Upgrade")


def _check_http(request: Request, rules: Rules) -> None:
    if request.one("content-length") not in (None, "0") or "transfer-encoding" in request.headers:
        raise Refusal(400, "the request has a body")
    if request.path not in rules.paths:
        raise Refusal(404, f"there is nothing here; the path of the WebSocket is {rules.paths[0]}")
    if request.method != "GET":
        raise Refusal(405, "a WebSocket is opened with GET", "Allow: GET")
    upgrades = [one.lower() for one in request.tokens("upgrade")]
    if "websocket" not in upgrades or "upgrade" not in [one.lower() for one in request.tokens("connection")]:
        raise Refusal(426, "this is a WebSocket: the request must ask for an upgrade to it", *_UPGRADE)


def _key(request: Request) -> str:
    key = request.one("sec-websocket-key") or ""
    try:
        sound = len(base64.b64decode(key, validate=True)) == 16
    except (binascii.Error, ValueError):
        sound = False
    if not sound:
        raise Refusal(400, "Sec-WebSocket-Key is missing or not valid")
    return key


def _host(request: Request) -> str:
    """Returns the host that the client asked for, without its port."""
    host = _HOST.fullmatch(request.one("host") or "")
    if host is None:
        raise Refusal(400, "Host is missing or not valid")
    return host[1].strip("[]").lower()


def allowed(origin: str, host: str, origins: tuple[str, ...] | None, *, secure: bool = False) -> bool:
    """Returns whether a page of this origin may open a WebSocket to this host. ``secure``: inside TLS."""
    if origins is not None:
        return any(_matches(origin.lower(), pattern.lower()) for pattern in origins)
    try:
        page = urlsplit(origin)
        here = (page.hostname or "").lower()
    except ValueError:
        return False
    if page.scheme not in ("http", "https") or not (is_no_name(host) or (secure and page.scheme == "https")):
        return False
    return here == host or (is_loopback(here) and is_loopback(host))


def _matches(origin: str, pattern: str) -> bool:
    if pattern in ("*", origin):
        return True
    scheme, wild, rest = pattern.partition("://*.")
    return bool(wild) and origin.startswith(f"{scheme}://") and origin.endswith(f".{rest}")


def is_no_name(host: str) -> bool:
    """Tells whether a host is an address, or ``localhost``: no page can have made it mean this host."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return True


def is_loopback(host: str) -> bool:
    """Tells whether an address is this machine's own, or ``localhost``."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class RequestReader:
    """Collects the head of a request."""

    __slots__ = ("_head",)

    def __init__(self) -> None:
        self._head = bytearray()

    @property
    def held_bytes(self) -> int:
        return len(self._head)

    @property
    def room_bytes(self) -> int:
        return HEAD_BYTES_MAX - len(self._head)

    def feed(self, data: bytes) -> tuple[Request, bytes] | None:
        """Returns the request once it is whole, and the bytes that came behind it. Raises Refusal."""
        head = self._head
        searched = max(0, len(head) - len(END) + 1)
        head += data
        if not 0x41 <= head[0] <= 0x5A:
            text = "this is TLS, and the listener is in clear (ws://)" if head[0] == 0x16 else "this is not HTTP"
            raise Refusal(400, text)
        end = head.find(END, searched)
        if (len(head) if end < 0 else end) >= HEAD_BYTES_MAX:
            raise Refusal(431, f"the request has more than {HEAD_BYTES_MAX} bytes")
        if end < 0:
            return None
        request, rest = parse(bytes(head[:end])), bytes(head[end + len(END) :])
        head.clear()
        return request, rest
