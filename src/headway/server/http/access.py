"""Access control of the admin API: who may connect, what a user may do, and how long a request may take.

Rules:
- Without TLS, only clients on this machine are answered, among them proxies under the names of ``trusted_origins``. Of
  web pages in a browser, only the broker's own is (the console), at its own address or at one of these: a request of
  any other page's is refused, whatever it asks for.
- A proxy may leave ``base_path`` in front of each path. It is taken away before anything looks at the path.
- The console's files (``/``, ``CONSOLE``) hold nothing of this broker and need no login: the page itself asks for one.
- Code for pages (``PUBLIC``) is for everybody, web pages among them. So is the broker's health (``HEALTH``): what asks
  for it (systems that watch and balance) often has no login, and names any host.
- If there are users or tokens, a request must name one of them (HTTP basic, bearer token), unless the client's
  certificate names its user. ``[auth.admin]`` says which may read and which may change. Everything is a change except
  GET, HEAD, and asking what a config would do.
- If there are permissions, they say the same with ``admin``, and left out means nobody. What programs read and publish
  (``DATA``) needs neither then, but the permissions for its topics and names; those are checked where they are known.
- Idle connections are closed: without a request within ``HEADER_S``, if a body does not arrive, and if an answer is not
  read. There are ``CONNECTIONS_MAX`` connections at most. When there is no place for another one, the connection that
  has done nothing for the longest time makes room: first of those on which nobody has logged in. So who connects, and
  does not log in, keeps nobody out. Where all are busy, ``RESERVED`` more get an answer to one request each, for the
  broker's health or its metrics (``SHORT``).
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, cast
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.http import RawRequestMessage
from yarl import URL

from headway.core.permission import NOBODY, Identity
from headway.server.config import digest_of
from headway.server.connections import client_of
from headway.server.engine import Engine
from headway.server.http.bodies import Refusal, abort, is_gone, json_answer
from headway.server.http.http_connection import USER as CERTIFIED
from headway.server.http.http_connection import HttpConnection
from headway.server.logins import Attempt
from headway.server.logins import Refusal as RefusedLogin

log = logging.getLogger("headway")

CONNECTIONS_MAX = 256
RESERVED = 16
HEADER_S = 10.0
ANSWERS_BYTES_MAX = 64 * 1024 * 1024
"""Limit of all answers whose clients have not read them yet; small ones (``SMALL_BYTES``) are given all the same."""
SMALL_BYTES = 64 * 1024
REQUESTS_A_TURN = 32
"""Requests that are begun in one turn: each takes some tenths of a millisecond before anything is known of it."""
REQUEST_BYTES = 128 * 1024
"""So many bytes of an answer take as long as a request."""
UNREAD_S = 60.0
USER = web.RequestKey("user", str)
"""The user of a request; empty if there are no users."""
IDENTITY = web.RequestKey("identity", Identity)
ADDRESS = web.RequestKey("address", str)
"""The client's host, where a trusted proxy has said it."""
VOUCHED = "headway_vouched"
"""The name under which a transport tells that pages need not be refused here."""
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_READING = ("GET", "HEAD")
_ONLY_ASKING = ("/v1/preview", "/v1/console/replay")
DATA = ("/v1/topics", "/v1/state/", "/v1/cursors/", "/v1/writers/")
"""Paths at which programs read and publish records begin so."""
PUBLIC = "/javascript/"
"""Paths of files that need no login begin so: the code of a client for pages."""
CONSOLE = "/console/"
"""Paths of the console's files begin so."""
HEALTH = ("/healthz", "/readyz")
SHORT = (*HEALTH, "/metrics")
"""Paths of short answers that are given while all connections are busy."""
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class AccessControl:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._silent: dict[asyncio.BaseProtocol, asyncio.TimerHandle] = {}
        """Connections that have not made a request yet, and what ends each if it does not."""
        self._open: set[web.RequestHandler] = set()
        """All connections. aiohttp's own list of them is made anew at each look."""
        self._idle: dict[web.RequestHandler, tuple[bool, float]] = {}
        """Connections on which no request is being answered: whether somebody has logged in, and since when."""
        self._reserved: set[web.RequestHandler] = set()
        """Connections beyond ``CONNECTIONS_MAX``."""
        self._turn, self._begun = 0, 0
        """The number of a turn, and of requests that have begun in it."""
        self._unsent_bytes = 0
        """Bytes of answers that are being sent, in one piece each."""

    # -- connections ------------------------------------------------------------------------------------------------

    def connection(self, server: web.Server) -> asyncio.BaseProtocol:
        """Returns the protocol for a connection that is accepted."""
        reserved = False
        if len(self._open) >= CONNECTIONS_MAX:
            there = {one for one in self._open if one.transport is not None}  # the others are being closed
            if len(there) >= CONNECTIONS_MAX and not self._make_room(there - self._reserved):
                reserved = len(self._reserved) < RESERVED or self._make_room(self._reserved)
                if not reserved:
                    return _Full()
        protocol = HttpConnection(server, self._engine.loop, self._open, self._forget)
        if reserved:
            self._reserved.add(protocol)
        loop = self._engine.loop
        self._idle[protocol] = False, loop.time()
        # A loop that was held up finds the time over before the protocol has its transport, without which it cannot be
        # closed. That step is queued already, so the next one comes behind it.
        self._silent[protocol] = loop.call_later(HEADER_S, loop.call_soon, self._asked_or_out, protocol)
        return protocol

    def _make_room(self, among: Collection[web.RequestHandler]) -> bool:
        """Closes the connection that has done nothing for the longest time. Returns whether there was one."""
        idle = [one for one in self._idle if one in among]  # in this order: those of one turn have the same time
        if idle:
            longest = min(idle, key=self._idle.__getitem__)
            del self._idle[longest]
            self._reserved.discard(longest)
            longest.force_close()
        return bool(idle)

    def _asked_or_out(self, protocol: web.RequestHandler) -> None:
        if self._silent.pop(protocol, None) is not None:
            self._idle.pop(protocol, None)
            protocol.force_close()

    def _forget(self, protocol: web.RequestHandler) -> None:
        """Forgets a connection that is over."""
        self._spoke(protocol)
        self._idle.pop(protocol, None)
        self._reserved.discard(protocol)

    def _spoke(self, protocol: web.RequestHandler) -> None:
        timer = self._silent.pop(protocol, None)
        if timer is not None:
            timer.cancel()

    # -- requests ---------------------------------------------------------------------------------------------------

    @web.middleware
    async def enter(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        protocol = request.protocol
        assert isinstance(protocol, HttpConnection)
        self._spoke(protocol)
        self._idle.pop(protocol, None)
        protocol.begin(request)
        try:
            answer = self._answer(request, handler)
            response: web.StreamResponse = await self._engine.pulse.steps("admin", answer, request.path)
            return response
        finally:
            if protocol.transport is not None:
                self._idle[protocol] = bool(request.get(USER)), self._engine.loop.time()

    async def _its_turn(self, requests: int = 1) -> None:
        """Waits for a turn in which not so much has begun; an answer counts as ``requests``. So hundreds of clients
        that ask at once, or get their answers at once, and need no login for that, hold up nobody."""
        if not requests:
            return
        engine = self._engine
        while self._begun >= REQUESTS_A_TURN and self._turn == engine.turns and not engine.stopped:
            engine.turn_soon()
            await asyncio.sleep(0)
        if self._turn != engine.turns:
            self._turn, self._begun = engine.turns, 0
        self._begun += requests

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        server = self._engine.settings.server
        await self._its_turn()
        try:
            if request.protocol in self._reserved and request.path not in SHORT:
                raise Refusal(503, f"{CONNECTIONS_MAX} connections are busy already; try again later")
            if server.base_path != "/" and request.path == server.base_path.rstrip("/"):
                raise Refusal(308, "the console is one level below", headers={"Location": f"{request.path}/"})
            if not _is_public(request):
                if not _vouched(request):
                    _no_web_pages(request, server.trusted_origins)
                forwarded = request.headers.getall("X-Forwarded-For", []) if server.trusted_proxies else []
                if forwarded and request.remote:
                    steps = [step for line in forwarded for step in line.split(",")]
                    request[ADDRESS] = client_of(steps, request.remote, server.trusted_proxies)
                if not _is_console(request):
                    request[IDENTITY] = await self._identity(request)
                    request[USER] = request[IDENTITY].user
                    self._may(request)
            response = await handler(request)
        except Refusal as no:
            response = json_answer({"error": str(no)} | no.more, no.status, no.headers)
            if no.status == 401:
                response.headers["WWW-Authenticate"] = _challenge(request)
        except ConnectionError:
            if not is_gone(request):
                raise
            response = json_answer({"error": "the client has left"}, 400)  # while its body was awaited; nobody reads it
        if isinstance(response, web.Response):
            if request.protocol in self._reserved:
                response.force_close()
            await self._its_turn(_size(response) // REQUEST_BYTES)
            response = self._with_room(response)
            size = _size(response)
            self._unsent_bytes += size
            try:
                await _send(request, response)
            finally:
                self._unsent_bytes -= size
        return response

    def _with_room(self, response: web.Response) -> web.Response:
        """Returns the answer, or another in its place if clients that do not read have taken all memory for answers."""
        size = _size(response)
        if size <= SMALL_BYTES or self._unsent_bytes + size <= ANSWERS_BYTES_MAX:
            return response
        text = f"answers of {self._unsent_bytes} bytes wait for clients that do not read them; try again later"
        return json_answer({"error": text}, 503)

    async def _identity(self, request: web.Request) -> Identity:
        """Returns who makes a request. Raises Refusal."""
        auth = self._engine.settings.auth
        if certified := _certified(request):
            return Identity(certified, elsewhere=True)
        if not auth.asks:
            return NOBODY
        kind, _, said = request.headers.get("Authorization", "").strip().partition(" ")
        match kind.lower():
            case "":
                raise Refusal(401, "this broker has users: say who you are, by HTTP basic or with a bearer token")
            case "bearer" if self._engine.logins.is_token(said.strip().encode(errors="surrogateescape")):
                return await self._checked(request, "", said.strip().encode())
            case "bearer":
                digest = digest_of(said.strip())
                name = next((name for name, kept in auth.tokens.items() if kept == digest), None)
                if name is None:
                    raise _refused(request, "there is no such token")
                return Identity(name)
            case "basic":
                name, password = _basic(said)
                return await self._checked(request, name, password)
            case _:
                raise Refusal(401, "a login is by HTTP basic or with a bearer token")

    async def _checked(self, request: web.Request, name: str, password: bytes) -> Identity:
        """Returns the user of this name and password. Raises Refusal."""
        logins = self._engine.logins
        attempt = Attempt(name, password, address_of(request))
        found = logins.known(attempt) or await logins.check(attempt, lambda: not is_gone(request))
        if isinstance(found, RefusedLogin):
            raise _refused(request, found.text, name)
        return found

    def may_change(self, request: web.Request) -> bool:
        """Tells whether who makes a request, which was let in, may change what this API changes."""
        auth, user, permissions = self._engine.settings.auth, request[USER], self._engine.permissions
        if permissions.given:
            return permissions.may_admin(request[IDENTITY], "change") or auth.names(user, change=True)
        return (not auth.asks and not request[IDENTITY].elsewhere) or auth.may(user, change=True)

    def _may(self, request: web.Request) -> None:
        auth, user, permissions = self._engine.settings.auth, request[USER], self._engine.permissions
        change = request.method not in _READING and request.path not in _ONLY_ASKING
        if permissions.given:
            word = "change" if change else "read"
            permitted = permissions.may_admin(request[IDENTITY], word)
            if permitted or request.path.startswith(DATA) or auth.names(user, change=change):
                return
            permissions.deny_admin(user, word)
            who = user or "a client without a user name"
            raise Refusal(403, f'{who} may not {word} here: a [[permission]] with admin = ["{word}"] says who may')
        if not auth.asks and not request[IDENTITY].elsewhere:
            return
        if not auth.may(user, change=change):
            right = "change" if change else "read"
            raise Refusal(403, f"{user} may not {right} here: [auth.admin] {right} names who may")


class _Full(asyncio.Protocol):
    """A connection beyond ``CONNECTIONS_MAX``: it is told so and closed."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        whole = cast("asyncio.Transport", transport)  # uvloop's are none of asyncio's classes
        whole.write(_FULL)
        transport.close()


def _size(response: web.Response) -> int:
    return len(response.body) if isinstance(response.body, bytes | bytearray) else 0


async def _send(request: web.Request, response: web.Response) -> None:
    try:
        async with asyncio.timeout(UNREAD_S):
            writer = await response.prepare(request)
            if writer is not None and _size(response) > SMALL_BYTES:
                writer.send_headers()  # otherwise they are joined with the body, which many may get, into a copy
            await response.write_eof()
    except ConnectionError:
        pass  # the client is gone
    except TimeoutError:
        abort(request)


def _is_public(request: web.Request) -> bool:
    """Returns whether the handler of a request is for everybody; decided by its route, as other spellings of a path may
    lead elsewhere."""
    resource = request.match_info.route.resource
    return resource is not None and (resource.canonical.startswith(PUBLIC) or resource.canonical in HEALTH)


def _is_console(request: web.Request) -> bool:
    """Returns whether a request is for a file of the console; decided by its route, likewise."""
    resource = request.match_info.route.resource
    return resource is not None and (resource.canonical == "/" or resource.canonical.startswith(CONSOLE))


def _challenge(request: web.Request) -> str:
    """Returns how a client may log in. A page that says that it asks itself gets no challenge for which a browser would
    open a window of its own."""
    if "X-Requested-With" in request.headers:
        return 'Bearer realm="headway"'
    return 'Basic realm="headway", charset="UTF-8"'


def _no_web_pages(request: web.Request, trusted: Sequence[str]) -> None:
    """Refuses requests that a web page made its reader's browser send (DNS rebinding, forms). With TLS, the certificate
    shows a browser that another host is meant. ``trusted``: origins at which a proxy shows the console. Raises
    Refusal."""
    try:
        parts = urlsplit(f"//{request.host}")
        host = parts.hostname or ""
        if parts.port == 0 or parts.path:
            raise ValueError
    except ValueError:
        raise Refusal(400, "the Host header is not the name of a host") from None
    proxied = host in (urlsplit(origin).hostname for origin in trusted)
    if host not in _LOOPBACK and not request.secure and not proxied:
        remedy = f'behind a proxy, trusted_origins = ["https://{host[:100]}"] in [server] lets it in'
        raise Refusal(403, f"the admin API answers this machine only; {remedy}")
    own = f"{'https' if request.secure else 'http'}://{request.host}"
    origin = request.headers.get("Origin")
    if origin is not None and origin not in trusted and (origin != own or proxied):
        remedy = f'if this is its address behind a proxy, trusted_origins = ["{origin[:100]}"] in [server] lets it in'
        raise Refusal(403, f"the admin API answers no web pages but its own; {remedy}")
    if not _is_of_own_page(request):
        raise Refusal(403, "the admin API answers no web pages but its own")


def _is_of_own_page(request: web.Request) -> bool:
    """Returns False for requests that a browser says another site has made. What is typed in, or a link to the console
    itself, is of no page; where something is changed, or the browser does not say, there is an Origin as well."""
    site, mode = request.headers.get("Sec-Fetch-Site", "none"), request.headers.get("Sec-Fetch-Mode", "")
    return site in ("none", "same-origin") or (mode == "navigate" and (request.method, request.path) == ("GET", "/"))


def address_of(request: web.Request) -> str:
    """Returns the host that a request is from: as a trusted proxy says, or at the other end of the connection."""
    address: str = request.get(ADDRESS) or request.remote or ""
    return address


def below(base_path: str, make: Callable[..., web.BaseRequest]) -> Callable[..., web.BaseRequest]:
    """Returns a factory of requests whose paths have lost ``base_path``, where they begin so."""
    prefix = base_path.rstrip("/") + "/"

    def without(message: RawRequestMessage, *rest: Any) -> web.BaseRequest:
        if message.path.startswith(prefix):
            path = message.path[len(prefix) - 1 :]
            message = message._replace(path=path, url=URL(path, encoded=True))
        return make(message, *rest)

    return without


def _vouched(request: web.Request) -> bool:
    """Returns whether whoever has passed the request on has checked where it comes from (``headway.embed``)."""
    return bool(request.get_extra_info(VOUCHED))


def _certified(request: web.Request) -> str:
    """Returns the user whose certificate the client has shown; empty: none."""
    user: str = request.get_extra_info(CERTIFIED, "")
    return user


def _basic(said: str) -> tuple[str, bytes]:
    """Reads the name and password of HTTP basic. Raises Refusal."""
    try:
        name, colon, password = base64.b64decode(said.strip(), validate=True).partition(b":")
        if not colon:
            raise ValueError
        return name.decode(), password
    except (binascii.Error, ValueError):
        raise Refusal(401, "the login cannot be read: HTTP basic takes the base64 of NAME:PASSWORD, in UTF-8") from None


def _refused(request: web.Request, text: str, name: str = "") -> Refusal:
    address = address_of(request)
    fields = {"listener": "admin", "address": address, "user": name, "why": text}
    log.info("refused %s at the admin API%s: %s", address, f" ({name!r})" if name else "", text,
             extra={"fields": fields})  # fmt: skip
    return Refusal(401, text)
