"""A login by SCRAM in three steps, for protocols in whose logins challenges and responses follow each other (SASL)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Protocol

from headway.core.permission import Identity
from headway.server.connections import Connection
from headway.server.logins import LoginSide, Refusal, Scram, ScramError

if TYPE_CHECKING:
    from headway.server.engine import Engine


class ScramSide(LoginSide, Protocol):
    """The peer, as its login by SCRAM knows it."""

    engine: Engine
    connection: Connection
    username: str


class ScramLogin(ABC):
    """The client's first message is answered by a challenge, and its last one by the proof that the server knows the
    password, too."""

    __slots__ = ("_scram",)

    def __init__(self) -> None:
        self._scram: Scram | None = None
        """The conversation whose last message is still to come."""

    @property
    @abstractmethod
    def _side(self) -> ScramSide: ...

    @abstractmethod
    def _challenge(self, message: bytes) -> None:
        """Sends the answer to the first message."""

    @abstractmethod
    def _proven(self, answer: bytes) -> None:
        """Lets the client in. ``answer``: the server's proof."""

    @abstractmethod
    def _refuse(self, text: str) -> None: ...

    def _converse(self, scram: Scram, message: bytes) -> None:
        """Answers the first message."""
        side = self._side
        try:
            answer = scram.first(message)
        except ScramError as error:
            self._refuse(str(error))
            return
        side.username = side.connection.username = scram.name
        self._scram = scram
        self._challenge(answer)

    def _prove(self, scram: Scram, message: bytes) -> None:
        """Checks the last message."""
        side = self._side
        self._scram = None
        wanted = partial(_is_open, side.connection)
        side.wait_for(side.engine.logins.check_proof(scram, message, side.host, wanted), self._proved)

    def _proved(self, proof: tuple[Identity | Refusal, bytes]) -> None:
        found, answer = proof
        refusal = self._side.take(found)
        if refusal is not None:
            self._refuse(refusal.text)
        else:
            self._proven(answer)


def _is_open(connection: Connection) -> bool:
    return connection.open
