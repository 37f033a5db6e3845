"""The login side of a peer: it finds out who a client is, and begins its session."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Coroutine
from typing import Any, TypeVar

from headway.core.consumer import ConnectRequest, Session
from headway.core.permission import NOBODY, Identity
from headway.server.config import ListenerTable
from headway.server.connections import Connection
from headway.server.engine import Engine
from headway.server.logins import Attempt, Refusal, network_of
from headway.server.peers.states import GREETING, WAITING, ClientState

T = TypeVar("T")
ANOTHER_NAME = Refusal("the user name is not that of the client's certificate", checked=False)


class LoginSide(ABC):
    __slots__ = ("connection", "engine", "identity", "listener", "username")

    engine: Engine
    connection: Connection
    listener: ListenerTable
    identity: Identity
    """The client's identity, as was checked; a name that is only a label is nobody's."""
    username: str
    """The name that the client gave at its login."""

    @abstractmethod
    def become(self, state: ClientState) -> None: ...
    @abstractmethod
    def go_on(self) -> None:
        """Handles items that came while the peer was waiting."""

    @property
    def takes_anybody(self) -> bool:
        """Whether the client may come in without a login."""
        return self.listener.allows_anonymous(self.engine.logins.ask)

    def log_in(
        self, name: str | None, password: bytes, done: Callable[[Refusal | None], None],
        wanted: str = "a user name and a password",
    ) -> None:  # fmt: skip
        """Calls ``done`` with why the client is refused, None if it is not: at once, or after a check of its password.
        ``name``: that which it gives, if any; ``wanted``: what its protocol calls a name and a password."""
        logins = self.engine.logins
        if self.connection.stream.user:
            done(self.certify(same=name in (None, self.connection.stream.user)))
        elif name is None and not logins.is_token(password):
            done(None if self.takes_anybody else Refusal(f"this listener wants {wanted}", checked=False))
        elif not logins.ask and self.takes_anybody:
            done(None)  # no users are configured, so the name is only a label
        else:
            self.check_password(name or "", password, done)

    def certify(self, *, same: bool) -> Refusal | None:
        """Takes the identity in the client's certificate. Returns why the client is refused, unless the name that it
        gives is the ``same``."""
        if not same:
            return ANOTHER_NAME
        self.identity = Identity(self.connection.stream.user, elsewhere=True)
        return None

    def attempt(self, username: str, password: bytes) -> Attempt:
        return Attempt(username, password, self.host, self.connection.client, self.connection.listener)

    def is_wanted(self) -> bool:
        """Whether the client still waits for the answer to its login."""
        return self.connection.open

    def check_password(self, username: str, password: bytes, done: Callable[[Refusal | None], None]) -> None:
        """Calls ``done`` with why the client is refused, None if it is not: at once if this login is remembered, else
        after a check beside the loop. Items that came meanwhile are handled after that. If the connection ends first,
        nothing is called."""
        logins, attempt = self.engine.logins, self.attempt(username, password)
        known = logins.known(attempt)
        if known is not None:
            self.take(known)
            done(None)
        else:
            self.wait_for(logins.check(attempt, self.is_wanted), lambda found: done(self.take(found)))

    def wait_for(self, answer: Coroutine[Any, Any, T], done: Callable[[T], None]) -> None:
        """Calls ``done`` with the answer. Until then the client is neither handled nor read. If the connection ends
        first, nothing is called."""
        self.become(WAITING)
        self.connection.pause_reading("password")
        self.engine.spawn(self._wait_for(answer, done))

    async def _wait_for(self, answer: Coroutine[Any, Any, T], done: Callable[[T], None]) -> None:
        found = await answer
        if self.connection.open:
            self.become(GREETING)
            self.connection.resume_reading("password")
            done(found)
            self.go_on()

    async def answer(self, answer: Coroutine[Any, Any, T], done: Callable[[T], None]) -> None:
        """Calls ``done`` with the answer, while the client goes on. If the connection ends first, nothing is called."""
        found = await answer
        if self.connection.open:
            done(found)

    def take(self, found: Identity | Refusal) -> Refusal | None:
        """Takes the identity that was found. Returns why the client is refused; None: it is not."""
        if isinstance(found, Refusal):
            self.identity = NOBODY
            return found
        self.identity = found
        self.connection.username = found.user
        return None

    @property
    def host(self) -> str:
        """The client's address without its port."""
        return self.connection.address.rpartition(":")[0]

    @property
    def owner(self) -> str:
        """The owner that the client's memory counts to: its user, or its address if nobody has checked a name."""
        return f"user {self.identity.user}" if self.identity.user else f"clients from {network_of(self.host)}"

    def connect(self, name: str, protocol: str, username: str | None) -> Session:
        """Begins the session of a client that is let in. Raises :class:`Refused`."""
        engine, identity = self.engine, self.identity
        request = ConnectRequest(
            name, self.connection.listener, credit=self.listener.in_flight_max, username=identity.user or username,
            protocol=protocol, rights=engine.permissions.rights(identity, name),
            allowance=engine.allowances.of(identity), owner=self.owner,
        )  # fmt: skip
        return engine.broker.connect(request, self.connection, engine.now())

    def free_name(self, wanted: str) -> str:
        """Returns a name for the session of a client that may be called like others, whose connection is its session:
        this one, numbered if it is taken."""
        return free_name(wanted, self.engine.broker.registry.sessions)


def free_name(wanted: str, taken: Container[str]) -> str:
    """Returns a name that is not taken: this one, or with a number. Few are tried, though very many clients have the
    same: numbers are doubled until one is free, and halfway between a taken and a free one until these are neighbours.
    """
    if wanted not in taken:
        return wanted
    low, free = 1, 2
    while f"{wanted}#{free}" in taken:
        low, free = free, 2 * free
    while free - low > 1:
        middle = (low + free) // 2
        if f"{wanted}#{middle}" in taken:
            low = middle
        else:
            free = middle
    return f"{wanted}#{free}"
