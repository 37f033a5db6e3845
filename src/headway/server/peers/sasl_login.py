"""A login by SASL: a mechanism that the client chooses, and by SCRAM a challenge and its response after it."""

from __future__ import annotations

from abc import ABC, abstractmethod

from headway.core.permission import Identity
from headway.server.logins import Refusal, Scram, ScramError
from headway.server.peers.part import PeerPart, Side

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
