"""The handshake: protocol header, login, limits, vhost. Its end is the beginning of the session.

While the client's password is being checked (in a thread, because that is slow on purpose) nothing is read from it, and
nothing that it has sent is handled.
"""

from __future__ import annotations

from pamqp import base, commands

from headway.core.base import Reason, moved
from headway.core.permission import Identity
from headway.server.amqp.faults import connection_fault
from headway.server.amqp.ports import CHANNEL_MAX, FRAME_BYTES_MAX, ClientSide
from headway.server.amqp.states import HANDSHAKE_MOVES, Expected
from headway.server.logins import SCRAM, Refusal
from headway.server.peers import SaslLogin
from headway.wire.amqp.codes import ReplyCode
from headway.wire.amqp.decoder import FRAME_BYTES_MIN
from headway.wire.amqp.login import MECHANISMS, read_login
from headway.wire.amqp.replies import write_close_connection, write_start
from headway.wire.amqp.versions import OFFERED, Version
from headway.wire.sasl import EXTERNAL, Login

HEARTBEAT_S = 60
NAME_CHARS_MAX = 200


class Handshake(SaslLogin[ClientSide]):
    __slots__ = ("_client", "_expected", "_newest", "_renewals", "_told")

    def __init__(self, peer: ClientSide) -> None:
        super().__init__(peer)
        self._client = ""
        self._told = False
        """Whether the client understands a refusal in words."""
        self._renewals = 0
        """The new tokens that are not answered yet. One of them is checked, and after it the newest."""
        self._newest: bytes | None = None
        self._expected = Expected.HEADER
        """Set by ``_expect`` alone."""

    def begin(self, version: Version | None) -> None:
        peer = self._peer
        if version is None:
            fault = connection_fault(ReplyCode.FRAME_ERROR, "asked for a protocol that is not spoken here")
            peer.engine.protocol_error(peer.connection, fault)
            peer.end_with(OFFERED, Reason.PROTOCOL_ERROR, str(fault))
            return
        peer.version = version
        self._expect(Expected.START_OK)
        more = [EXTERNAL] if peer.connection.stream.user else []
        if peer.engine.logins.scram() is not None:
            more.append(SCRAM)
        peer.write(write_start(version, " ".join([MECHANISMS, *more])))

    def handle(self, command: base.Frame) -> None:
        if command.name != self._expected:
            raise connection_fault(ReplyCode.COMMAND_INVALID, f"{command.name} before {self._expected}")
        match command:
            case commands.Connection.StartOk():
                self._start(command)
            case commands.Connection.SecureOk():
                if self._scram is not None:
                    self._prove(self._scram, _raw(command.response))
                else:
                    self._admit()  # the client has seen the server's proof
            case commands.Connection.TuneOk():
                self._tune(command)
            case commands.Connection.Open():
                self._open(command)

    def _expect(self, expected: Expected) -> None:
        self._expected = moved(HANDSHAKE_MOVES, self._expected, expected)

    # -- login ------------------------------------------------------------------------------------------------------

    def _start(self, command: commands.Connection.StartOk) -> None:
        peer = self._peer
        about = command.client_properties or {}
        abilities = about.get("capabilities")
        able = abilities if isinstance(abilities, dict) else {}
        peer.cancels = bool(able.get("consumer_cancel_notify"))
        peer.tells_blocked = bool(able.get("connection.blocked"))
        name = about.get("connection_name")
        if isinstance(name, str) and name.isprintable():
            self._client = name[:NAME_CHARS_MAX]
        self._told = bool(able.get("authentication_failure_close"))
        certified = peer.connection.stream.user
        if command.mechanism == SCRAM and not certified and (scram := peer.engine.logins.scram()) is not None:
            peer.connection.client = self._client
            self._converse(scram, _raw(command.response))
            return
        external = bool(certified) and command.mechanism == EXTERNAL
        login = Login(certified, b"") if external else read_login(command.mechanism, command.response)
        if login is None:
            raise connection_fault(ReplyCode.COMMAND_INVALID, f"mechanism {command.mechanism!r} is not offered here")
        peer.username = peer.connection.username = certified or login.user
        peer.connection.client = self._client
        self._log_in(login)

    def _refuse(self, text: str) -> None:
        peer = self._peer
        peer.engine.refused(peer.connection, text)
        word = write_close_connection(peer.version, ReplyCode.ACCESS_REFUSED, text) if self._told else b""
        peer.end_with(word, Reason.NOT_AUTHORIZED, text)

    def renew(self, secret: str | bytes | None) -> None:
        """Takes a new token in the place of the one that the client came in by; any other secret changes nothing. While
        one is checked, only the newest of those that come waits, so nobody fills the queue of all logins."""
        peer, token = self._peer, _raw(secret)
        if peer.identity.until_s is None or not peer.engine.logins.is_token(token):
            peer.say(0, commands.Connection.UpdateSecretOk())
            return
        self._renewals += 1
        if self._renewals > 1:
            self._newest = token
        else:
            self._check_newer(token)

    def _check_newer(self, token: bytes) -> None:
        peer = self._peer
        found = peer.engine.logins.check(peer.attempt(peer.username, token), peer.is_wanted)
        peer.engine.spawn(peer.answer(found, self._renewed))

    def _renewed(self, found: Identity | Refusal) -> None:
        """Lets the connection go on for as long as the new token is valid, or ends it."""
        peer = self._peer
        if isinstance(found, Identity) and found.user == peer.identity.user:
            peer.identity = found
            if peer.session is not None:
                peer.engine.permissions.renewed(peer.session, found, peer.engine.now())
                peer.engine.turn_soon()
            peer.engine.ends_with(peer.connection, found)
            newest, self._newest = self._newest, None
            answered = 1 if newest is None else self._renewals - 1
            self._renewals -= answered
            for _ in range(answered):
                peer.say(0, commands.Connection.UpdateSecretOk())
            peer.connection.out_soon()
            if newest is not None:
                self._check_newer(newest)
        else:
            text = found.text if isinstance(found, Refusal) else "the new token is of another user"
            self._told = True
            self._refuse(text)

    # -- SCRAM ------------------------------------------------------------------------------------------------------

    def _proven(self, answer: bytes) -> None:
        """Shows the proof in one more challenge, to which the client's response is empty: AMQP has no other place."""
        self._challenge(answer)

    def _challenge(self, message: bytes) -> None:
        self._expect(Expected.SECURE_OK)
        self._peer.say(0, commands.Connection.Secure(message.decode()))

    # -- limits and vhost -------------------------------------------------------------------------------------------

    def _admit(self) -> None:
        self._expect(Expected.TUNE_OK)
        heartbeat_s = int(self._peer.listener.offers_beat(HEARTBEAT_S))
        self._peer.say(0, commands.Connection.Tune(CHANNEL_MAX, FRAME_BYTES_MAX, heartbeat_s))

    def _tune(self, command: commands.Connection.TuneOk) -> None:
        frame_max, channel_max = command.frame_max or FRAME_BYTES_MAX, command.channel_max or CHANNEL_MAX
        if not FRAME_BYTES_MIN <= frame_max <= FRAME_BYTES_MAX:
            text = f"frame_max {frame_max} (from {FRAME_BYTES_MIN} to {FRAME_BYTES_MAX})"
            raise connection_fault(ReplyCode.NOT_ALLOWED, text)
        if channel_max > CHANNEL_MAX:
            raise connection_fault(ReplyCode.NOT_ALLOWED, f"channel_max {channel_max} (at most {CHANNEL_MAX})")
        heartbeat_s = float(command.heartbeat or 0)
        if fault := self._peer.listener.beat_fault(heartbeat_s):
            raise connection_fault(ReplyCode.NOT_ALLOWED, fault)
        self._peer.tuned(channel_max, frame_max, heartbeat_s)
        self._expect(Expected.OPEN)

    def _open(self, command: commands.Connection.Open) -> None:
        if command.virtual_host not in ("/", ""):
            raise connection_fault(ReplyCode.NOT_ALLOWED, f"there is no vhost '{command.virtual_host}', only '/'")
        self._peer.opened(self._name())

    def _name(self) -> str:
        """Returns the name by which operators know the client: its connection's name, numbered if it is taken."""
        wanted = self._client or f"amqp-{self._peer.connection.address}"
        return self._peer.free_name(wanted)


def _raw(response: str | bytes | None) -> bytes:
    return response.encode() if isinstance(response, str) else response or b""
