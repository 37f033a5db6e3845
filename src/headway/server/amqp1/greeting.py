"""The greeting: protocol headers, the login by SASL, and the open. Its end is the beginning of the session of the core.

While the client's password is being checked (in a thread, because that is slow on purpose) nothing is read from it, and
nothing that it has sent is handled.
"""

from __future__ import annotations

from typing import Any

from headway.core.base import Reason
from headway.server.amqp1.faults import connection_fault
from headway.server.amqp1.ports import ClientSide
from headway.server.logins import SCRAM
from headway.server.peers import GUEST, SaslLogin
from headway.wire.amqp1.codes import Condition
from headway.wire.amqp1.items import Layer
from headway.wire.amqp1.performatives import SaslInit, SaslResponse
from headway.wire.amqp1.replies import HEADERS, sasl_challenge, sasl_mechanisms, sasl_outcome
from headway.wire.amqp1.values import malformed
from headway.wire.sasl import ANONYMOUS, EXTERNAL, PLAIN, read_plain

REFUSED = 1


class Greeting(SaslLogin[ClientSide]):
    __slots__ = ("_done", "_offered", "_started")

    def __init__(self, peer: ClientSide) -> None:
        super().__init__(peer)
        self._done = False
        """Whether it is known who the client is, or that it need not be."""
        self._offered: tuple[str, ...] = ()
        """Mechanisms; none: SASL has not begun."""
        self._started = False
        """Whether the client has chosen one."""

    def begin(self, layer: Layer) -> None:
        peer = self._peer
        certified = peer.connection.stream.user
        if layer is Layer.AMQP and not self._done and not self._offered and (certified or peer.takes_anybody):
            if certified:
                peer.username = peer.connection.username = certified
                peer.certify(same=True)
            self._done = True
        if layer is Layer.AMQP and self._done:
            peer.write(HEADERS[Layer.AMQP])
        elif layer is Layer.SASL and not self._offered:
            self._offered = self._mechanisms()
            peer.write(HEADERS[Layer.SASL] + sasl_mechanisms(self._offered))
        else:
            wanted = Layer.SASL if layer is Layer.AMQP else Layer.AMQP
            text = "asked for AMQP without SASL" if layer is Layer.AMQP else "asked for a layer that is not spoken here"
            fault = connection_fault(Condition.NOT_ALLOWED, text)
            peer.engine.protocol_error(peer.connection, fault)
            peer.end_with(HEADERS[wanted], Reason.PROTOCOL_ERROR, str(fault))

    def _mechanisms(self) -> tuple[str, ...]:
        peer = self._peer
        if peer.connection.stream.user:
            return EXTERNAL, PLAIN, ANONYMOUS
        scram = [SCRAM] if peer.engine.logins.scram() is not None else []
        return (*scram, PLAIN, *([ANONYMOUS] if peer.takes_anybody else []))

    # -- SASL ---------------------------------------------------------------------------------------------------------

    def handle(self, performative: Any) -> None:
        if self._done or not self._offered:
            raise connection_fault(Condition.NOT_ALLOWED, "a login is not expected now")
        match performative:
            case SaslInit(mechanism, response) if not self._started:
                self._started = True
                self._start(str(mechanism), response or b"")
            case SaslResponse(response) if self._scram is not None:
                self._prove(self._scram, response)
            case _:
                raise connection_fault(Condition.NOT_ALLOWED, "that is not what a login goes on with")

    def _start(self, mechanism: str, response: bytes) -> None:
        peer = self._peer
        if mechanism not in self._offered:
            self._refuse(f"mechanism {mechanism!r} is not offered here")
            return
        certified = peer.connection.stream.user
        if mechanism == SCRAM:
            scram = peer.engine.logins.scram()
            assert scram is not None
            self._converse(scram, response)
            return
        login = read_plain(response, malformed) if mechanism == PLAIN else GUEST
        peer.username = peer.connection.username = certified or ("" if mechanism == ANONYMOUS else login[0])
        self._log_in(login, names_user=mechanism == PLAIN)

    def _admit(self, message: bytes | None = None) -> None:
        self._done = True
        self._peer.write(sasl_outcome(0, message))

    def _refuse(self, text: str) -> None:
        peer = self._peer
        peer.engine.refused(peer.connection, text)
        peer.end_with(sasl_outcome(REFUSED), Reason.NOT_AUTHORIZED, text)

    def _challenge(self, message: bytes) -> None:
        self._peer.write(sasl_challenge(message))

    def _proven(self, answer: bytes) -> None:
        self._admit(answer)
