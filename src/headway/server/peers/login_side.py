"""The login side of a peer: it finds out who a client is, and begins its session."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Coroutine
from enum import StrEnum
from math import inf
from typing import Any, Generic, TypeVar

from headway.core.base import Reason
from headway.core.consumer import CloseChannel, ConnectRequest, Session, Subscription
from headway.core.permission import NOBODY, Identity
from headway.server.config import ListenerTable
from headway.server.connections import Connection
from headway.server.engine import Engine
from headway.server.logins import Attempt, Refusal, Scram, ScramError, network_of

# -- states ------------------------------------------------------------------------------------------------------------
#
# States of a client's side of a protocol, from its first byte to the end of its connection.


class ClientState(StrEnum):
    GREETING = "greeting"
    """The client says who it is and what it can do."""
    WAITING = "waiting"
    """The client waits: its password is being checked, or its session is not in the journal yet. Nothing it sends is
    handled."""
    OPEN = "open"
    """The client was told that it is connected."""
    CLOSING = "closing"
    """The last word to the client is chosen; nothing else may be sent."""
    CLOSED = "closed"


GREETING, WAITING, OPEN, CLOSING, CLOSED = ClientState
MOVES = {
    GREETING: {WAITING, OPEN, CLOSING, CLOSED},
    WAITING: {GREETING, OPEN, CLOSING, CLOSED},
    OPEN: {CLOSING, CLOSED},
    CLOSING: {CLOSED},
    CLOSED: set[ClientState](),
}


# -- quiet -------------------------------------------------------------------------------------------------------------
#
# Requests of the broker to a peer that has no packet for them: an advisory says it then.


class QuietPeer:
    __slots__ = ()
    closes_consumers = False

    def heartbeat(self, now: float) -> float:
        return inf

    def says_goodbye(self) -> bool:
        return False

    @property
    def has_more(self) -> bool:
        return False

    def paused(self, why: str) -> None: ...
    def close_channel(self, effect: CloseChannel) -> None: ...
    def close_consumer(self, subscription: Subscription, text: str) -> None: ...
    def cancelled(self, subscription: Subscription, reason: Reason) -> None: ...
    def revoked(self, subscription: Subscription, reason: Reason, text: str) -> None: ...


# -- login side --------------------------------------------------------------------------------------------------------


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


# -- part --------------------------------------------------------------------------------------------------------------
#
# Parts of a peer, which know it until its connection has ended.


Side = TypeVar("Side", bound=LoginSide)


class PeerPart(Generic[Side]):
    __slots__ = ("_peer",)

    def __init__(self, peer: Side) -> None:
        self._peer = peer

    def over(self) -> None:
        """Drops the peer when the connection has ended, so that no cycle is left."""
        del self._peer


# -- sasl login --------------------------------------------------------------------------------------------------------
#
# A login by SASL: a mechanism that the client chooses, and by SCRAM a challenge and its response after it.


GUEST = "guest", b"guest"
"""The default login of many clients: it means no user, unless there is one of that name."""


class SaslLogin(PeerPart[Side], ABC):
    """By SCRAM the client's first message is answered by a challenge, and its last one by the proof that the server
    knows the password, too."""

    __slots__ = ("_scram",)

    def __init__(self, peer: Side) -> None:
        super().__init__(peer)
        self._scram: Scram | None = None
        """The conversation whose last message is still to come."""

    @abstractmethod
    def _challenge(self, message: bytes) -> None:
        """Sends the answer to the first message."""

    @abstractmethod
    def _proven(self, answer: bytes) -> None:
        """Lets the client in. ``answer``: the server's proof."""

    @abstractmethod
    def _admit(self) -> None: ...
    @abstractmethod
    def _refuse(self, text: str) -> None: ...

    def _log_in(self, login: tuple[str, bytes], *, names_user: bool = True) -> None:
        """Lets the client in by its certificate, by its login, or as nobody. ``names_user``: its mechanism does."""
        peer = self._peer
        certified, logins = peer.connection.stream.user, peer.engine.logins
        says_who = names_user and logins.ask and (login != GUEST or logins.has(GUEST[0]))
        if certified:
            self._checked(peer.certify(same=login == GUEST or login[0] == certified))
        elif not says_who and peer.takes_anybody:
            self._admit()  # no users are configured, or no user is named: the name is only a label
        else:
            peer.check_password(*login, self._checked)

    def _checked(self, refusal: Refusal | None) -> None:
        if refusal is None:
            self._admit()
        else:
            self._refuse(refusal.text)

    def _converse(self, scram: Scram, message: bytes) -> None:
        """Answers the first message."""
        peer = self._peer
        try:
            answer = scram.first(message)
        except ScramError as error:
            self._refuse(str(error))
            return
        peer.username = peer.connection.username = scram.name
        self._scram = scram
        self._challenge(answer)

    def _prove(self, scram: Scram, message: bytes) -> None:
        """Checks the last message."""
        peer = self._peer
        self._scram = None
        peer.wait_for(peer.engine.logins.check_proof(scram, message, peer.host, peer.is_wanted), self._proved)

    def _proved(self, proof: tuple[Identity | Refusal, bytes]) -> None:
        found, answer = proof
        refusal = self._peer.take(found)
        if refusal is not None:
            self._refuse(refusal.text)
        else:
            self._proven(answer)
