"""AMQP's side of the server without sockets or asyncio: engine, connections, peers and broker are the real ones; the
loop, its clock, and what is called a socket are pretended. Nothing happens by itself, and nothing takes time.

A client writes bytes of its own making and reads them with ``pamqp``, which has nothing to do with how they were
written. What it was told can be had in ``words``, one for each thing: channel, method, and what matters about it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from math import inf
from typing import Any, NamedTuple

from pamqp import base, body, commands, frame, header, heartbeat
from pamqp.commands import Basic, Channel, Connection, Queue
from tests.server.pretended import CRASHES, Hangups, Loop, Socket

from headway.core.base.errors import Reason
from headway.core.permission import Identity
from headway.core.queue.queue import Queue as CoreQueue
from headway.core.telemetry import stats
from headway.server.amqp.peer import AmqpPeer
from headway.server.config.reading import parse_settings
from headway.server.connections.connection import Connection as ServerConnection
from headway.server.connections.turn_budget import TurnWork
from headway.server.engine.engine import Engine
from headway.server.logins import Attempt, Logins, Refusal
from headway.server.loop import Pulse
from headway.server.transport import PlainStream

OPENINGS = {"0-9-1": b"AMQP\x00\x00\x09\x01", "0-9": b"AMQP\x01\x01\x00\x09", "0-8": b"AMQP\x01\x01\x08\x00"}
ABLE = ("authentication_failure_close", "connection.blocked", "consumer_cancel_notify")
TURNS_MAX = 300
"""In a row, with nothing read in between."""
WALL_S = 1_700_000_000.0
"""What the calendar says at the clock's zero."""
QUIET = """
[listeners.amqp]
url = "amqp://127.0.0.1:0"
[pool]
memory = "64MB"
disk = 0
[flap]
base = "0s"
"""


# -- the server --------------------------------------------------------------------------------------------------------


class PromptLogins(Logins):
    """Everybody has one password, and it is checked at once."""

    right_password = b"right"

    async def check(self, attempt: Attempt, wanted: Callable[[], bool]) -> Identity | Refusal:
        return Identity(attempt.name) if attempt.password == self.right_password else Refusal("wrong password")


class House(Engine):
    """The engine, of the configuration ``QUIET`` and what is added to it."""

    def __init__(self, more: str = "") -> None:
        self.pretended = Loop()
        CRASHES.found = []  # of another test
        super().__init__(parse_settings(QUIET + more), self.pretended)  # type: ignore[arg-type]
        self.now = lambda: self.pretended.now
        self.pulse = Pulse(self.now)
        self.turn_work = TurnWork(lambda: 0.0)
        self.broker.registry.wall_offset_s = WALL_S
        self.logins.close()
        self.logins = PromptLogins(self.settings.auth, self.pretended)  # type: ignore[arg-type]
        self.hangups.close()
        self.hangups = self.pretended_hangups = Hangups()  # type: ignore[assignment]
        self.blamed: list[str] = []
        """The log of protocol errors and refusals."""
        self._ports = count(1)
        self.start()

    def refused(self, connection: ServerConnection, text: str) -> None:
        self.blamed.append(text)
        super().refused(connection, text)

    def protocol_error(self, connection: ServerConnection, error: Any) -> None:
        self.blamed.append(str(error))
        super().protocol_error(connection, error)

    # -- the loop ---------------------------------------------------------------------------------------------------

    def accept(
        self, sock: Socket, listener: str = "amqp", peer: Callable[..., Any] = AmqpPeer, **changed: Any
    ) -> ServerConnection:
        """As a listener does; its table may be ``changed``."""
        table = self.settings.listeners[listener].model_copy(update=changed)
        address = f"127.0.0.1:{next(self._ports)}"
        pool = self.broker.registry.pool_of(listener)
        connection = ServerConnection(self, PlainStream(sock), address, listener, pool, self.now())  # type: ignore[arg-type]
        self.connections.add(connection, connection.opened_s + table.connect_timeout_s)
        connection.start(peer(self, connection, table))
        return connection

    def run(self) -> None:
        """Until there is nothing to be done."""
        reads = turns = 0
        while self.pretended.once():
            turns = turns + 1 if reads == self.pretended.reads else 0
            reads = self.pretended.reads
            assert turns < TURNS_MAX, "the turn does not end"
            if CRASHES.found:
                crash, CRASHES.found = CRASHES.found[0], []
                raise crash

    def pass_time(self, seconds: float) -> None:
        self.run()
        for timer in self.pretended.due(self.now() + seconds):
            timer.call()
            self.run()

    # -- what there is ----------------------------------------------------------------------------------------------

    @property
    def queues(self) -> dict[str, CoreQueue]:
        return self.broker.registry.router.queues

    def stats(self, queue: str) -> stats.QueueStats:
        return stats.queue(self.queues[queue], self.now())

    def lost(self, client: str) -> dict[str, int]:
        """Records of this publisher that somebody was not given, by reason."""
        registry = self.broker.registry
        sessions = [*registry.sessions.values(), *registry.ended_publishers.values()]
        return dict(next(session for session in sessions if session.client == client).lost_records)


# -- clients -----------------------------------------------------------------------------------------------------------


class Content(NamedTuple):
    """A message as it arrived. ``method``: deliver, get-ok or return."""

    method: Any
    properties: Basic.Properties
    body: bytes

    @property
    def headers(self) -> dict[str, Any]:
        return dict(self.properties.headers or {})


class Other(NamedTuple):
    """A method that 0-9-1 does not have, or that is another there."""

    number: int
    """Class id << 16 | method id."""
    arguments: bytes


OTHERWISE = {20 << 16 | 11, 10 << 16 | 60, 10 << 16 | 61}
"""Methods of which 0-8 has another idea: channel.open-ok, and what are connection.close and close-ok there."""
Heard = tuple[int, Any]
"""Channel, and a command, Content, Other or Heartbeat."""


def method(channel: int, command: base.Frame) -> bytes:
    return frame.marshal(command, channel)


def raw(kind: int, channel: int, payload: bytes) -> bytes:
    """Any frame."""
    return kind.to_bytes(1, "big") + channel.to_bytes(2, "big") + len(payload).to_bytes(4, "big") + payload + b"\xce"


def message(
    channel: int, key: str, text: bytes, exchange: str = "", *, mandatory: bool = False, immediate: bool = False,
    frame_max: int = 4096, **properties: Any,
) -> list[bytes]:  # fmt: skip
    """Frame by frame."""
    command = Basic.Publish(exchange=exchange, routing_key=key, mandatory=mandatory, immediate=immediate)
    head = header.ContentHeader(body_size=len(text), properties=Basic.Properties(**properties))
    most = frame_max - 8
    parts = [body.ContentBody(text[at : at + most]) for at in range(0, len(text), most)]
    frames: list[frame.FrameTypes] = [command, head, *parts]
    return [frame.marshal(one, channel) for one in frames]


class Client:
    """Says what it is told to. ``heard`` is all it ever heard; ``new`` what it has since it was last asked."""

    def __init__(
        self, house: House, name: str = "", *, version: str = "0-9-1", able: tuple[str, ...] = ABLE, heartbeat: int = 0,
        frame_max: int = 0, channel_max: int = 0, channels: int = 1, begin: bool = True, capacity: float = inf,
        **listener: Any,
    ) -> None:  # fmt: skip
        self.house = house
        self.name = name
        self.version = version
        self.able = able
        self.sock = Socket()
        self.sock.capacity = capacity
        self.heard: list[Heard] = []
        self.reads = True
        self.bytes = b""
        """All that was ever read."""
        self.tail = b""
        """Of a frame that has not come whole."""
        self._asked = 0
        self._parts: dict[int, list[Any]] = {}
        self.connection = house.accept(self.sock, **listener)
        peer = self.connection.peer_side
        assert isinstance(peer, AmqpPeer)
        self.peer = peer
        if begin:
            self.begin(heartbeat, frame_max, channel_max)
            for number in range(1, channels + 1):
                assert self.say(Channel.Open(), channel=number) == [f"{number} Channel.OpenOk"]

    @property
    def open(self) -> bool:
        return self.connection.open

    def begin(self, heartbeat: int = 0, frame_max: int = 0, channel_max: int = 0) -> None:
        self.send(OPENINGS[self.version])
        self.send(method(0, self.start_ok()))
        self.send(method(0, Connection.TuneOk(channel_max, frame_max, heartbeat)))
        self.send(method(0, Connection.Open()))
        assert self.new() == ["Connection.Start", "Connection.Tune", "Connection.OpenOk"]

    def start_ok(self, user: str = "guest", password: str = "guest", **about: Any) -> Connection.StartOk:
        able: dict[str, Any] = dict.fromkeys(self.able, True)
        about = {"capabilities": able, **({"connection_name": self.name} if self.name else {}), **about}
        return Connection.StartOk(about, "PLAIN", f"\0{user}\0{password}")

    # -- out --------------------------------------------------------------------------------------------------------

    def send(self, *pieces: bytes) -> None:
        """Each is read for itself; then whatever is due is done, and read."""
        self.sock.incoming += [piece for piece in pieces if piece]
        self.run()

    def say(self, *said: base.Frame | list[bytes] | bytes, channel: int = 1) -> list[str]:
        """All of it in one piece. Returns what it hears."""
        self.new()
        parts = []
        for one in said:
            if isinstance(one, base.Frame):
                one = method(channel, one)
            parts.append(one if isinstance(one, bytes) else b"".join(one))
        self.send(b"".join(parts))
        return self.new()

    def put(self, key: str, *texts: bytes, exchange: str = "", channel: int = 1, **more: Any) -> list[str]:
        return self.say(*(message(channel, key, text, exchange, **more) for text in texts))

    def declare(self, name: str, arguments: dict[str, Any] | None = None, **more: Any) -> None:
        [answer] = self.say(Queue.Declare(queue=name, arguments=arguments or {}, **more))
        assert answer.startswith(f"1 Queue.DeclareOk {name} "), answer

    def take(self, queue: str, channel: int = 1) -> Content | None:
        """One message, and for good."""
        said = self.say(Basic.Get(queue=queue, no_ack=True), channel=channel)
        got = self.heard[-1][1]
        assert len(said) == 1, said
        return got if isinstance(got, Content) else None

    def drain(self, queue: str) -> list[bytes]:
        return [one.body for one in iter(lambda: self.take(queue), None)]

    def leave(self) -> None:
        """Without a word."""
        self.sock.incoming.append(b"")
        self.run()

    # -- in ---------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        self.house.run()
        while self.reads and self.read():
            self.house.run()

    def read(self) -> bool:
        """What has come. Whether there was any."""
        fresh = bytes(self.sock.taken)
        self.sock.taken.clear()
        self.bytes += fresh
        data, at = self.tail + fresh, 0
        while at < len(data) and (size := _frame_bytes(data, at)):
            self._hear(data[at : at + size])
            at += size
        self.tail = data[at:]
        return bool(fresh)

    def _hear(self, data: bytes) -> None:
        if data[:4] == b"AMQP":
            self.heard.append((0, data))
            return
        index = int.from_bytes(data[7:11], "big")
        channel = int.from_bytes(data[1:3], "big")
        if data[0] == 1 and (index not in commands.INDEX_MAPPING or (index in OTHERWISE and self.version == "0-8")):
            self.heard.append((channel, Other(index, data[11:-1])))
            return
        size, channel, item = frame.unmarshal(data)
        assert size == len(data)
        assert len(data) <= self.peer.frame_bytes_max
        parts = self._parts.get(channel)
        match item:
            case header.ContentHeader():
                assert parts is not None
                assert len(parts) == 1, "a second header"
                parts.append(item)
            case body.ContentBody():
                assert parts is not None
                assert len(parts) > 1, "a body without a header"
                parts.append(item.value)
            case _:
                assert parts is None, f"{item.name} in the middle of a message"
                if not isinstance(item, Basic.Deliver | Basic.GetOk | Basic.Return):
                    self.heard.append((channel, item))
                    return
                parts = self._parts[channel] = [item]
                return
        text = b"".join(parts[2:])
        assert len(text) <= parts[1].body_size
        if len(text) == parts[1].body_size:
            del self._parts[channel]
            self.heard.append((channel, Content(parts[0], parts[1].properties, text)))

    def new(self) -> list[str]:
        fresh = [words(channel, item) for channel, item in self.heard[self._asked :]]
        self._asked = len(self.heard)
        return fresh

    def last(self, kind: type) -> Any:
        """The last of its kind."""
        return next(item for _, item in reversed(self.heard) if isinstance(item, kind))


def _frame_bytes(data: bytes, at: int) -> int:
    """Of the frame there; 0: it has not come whole."""
    size = 8
    if data[at : at + 4] != b"AMQP":
        size += int.from_bytes(data[at + 3 : at + 7], "big")
    return size if at + size <= len(data) else 0


def words(channel: int, item: Any) -> str:
    """What was heard, in short: what cannot be foreseen is left out, and the channel where there is none."""
    match item:
        case Content(Basic.Deliver() as said, _, text):
            more: list[Any] = [said.consumer_tag, said.delivery_tag, text.decode() + "!" * said.redelivered]
            name = said.name
        case Content(Basic.GetOk() as said, _, text):
            more, name = [said.delivery_tag, text.decode() + "!" * said.redelivered, said.message_count], said.name
        case Content(Basic.Return() as said, _, text):
            more, name = [said.reply_code, text.decode()], said.name
        case Channel.Close() | Connection.Close():
            more, name = [item.reply_code], item.name
        case Basic.Ack() | Basic.Nack():
            more, name = [f"{item.delivery_tag}{'+' * item.multiple}"], item.name
        case Basic.ConsumeOk() | Basic.CancelOk() | Basic.Cancel():
            more, name = [item.consumer_tag], item.name
        case Queue.DeclareOk():
            more, name = [item.queue, item.message_count, item.consumer_count], item.name
        case Queue.DeleteOk() | Queue.PurgeOk():
            more, name = [item.message_count], item.name
        case Channel.FlowOk():
            more, name = [item.active], item.name
        case Other():
            more, name = [item.number >> 16, item.number & 0xFFFF], "Other"
        case bytes():
            more, name = [], item[:4].decode()
        case heartbeat.Heartbeat():
            more, name = [], "Heartbeat"
        case _:
            more, name = [], item.name
    return " ".join(map(str, [*([channel] if channel else []), name, *more]))


def reason_of(client: Client) -> Reason | None:
    """Why its session ended, as the broker sees it."""
    former = client.house.broker.registry.ended_publishers.values()
    return next((session.last_reason for session in former if session.client == client.name), None)
