"""A client of the run: its connection, what it got, and how the broker treated it.

What is read is counted at once. A record is acknowledged at once, unless its kind says later, or never.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import deque
from collections.abc import Sequence
from math import inf
from random import Random
from typing import NamedTuple

from headway.trouble.figures import Stamp, Tally, write_stamp
from headway.trouble.plan import READ_BYTES, Gone, Line, Place, Plan
from headway.trouble.wires import AmqpDialogue, Dialogue, MqttDialogue, WebSocketLine, shake_hands

# -- opening -----------------------------------------------------------------------------------------------------------
#
# Opening of lines: the connection, TLS, and the handshake of a WebSocket.


ANSWER_S = 10.0


def dial(place: Place, receive_buffer: int | None) -> socket.socket:
    """Connects, and does TLS's handshake; blocking. ``receive_buffer``: its size in bytes; None: the kernel's own.
    Raises OSError."""
    last: OSError | None = None
    for family, kind, protocol, _, address in socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM):
        sock = socket.socket(family, kind, protocol)
        try:
            if receive_buffer is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            sock.settimeout(ANSWER_S)
            sock.connect(address)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock if place.tls is None else place.tls.wrap_socket(sock, server_hostname=place.host)
        except OSError as error:
            sock.close()
            last = error
    raise last or OSError(f"{place.host} has no address")


async def open_line(place: Place, receive_buffer: int | None = None) -> Line:
    """Raises OSError."""
    sock = await asyncio.to_thread(dial, place, receive_buffer)
    if place.websocket_path is None:
        return Line(sock)
    try:
        rest = await asyncio.to_thread(shake_hands, sock, place)
    except OSError:
        sock.close()
        raise
    return WebSocketLine(sock, rest)


# -- stage -------------------------------------------------------------------------------------------------------------
#
# The stage of a run: the broker, the plan, and what all clients of the run share.


class Stage:
    def __init__(self, place: Place, plan: Plan, run: int) -> None:
        self.place, self.plan = place, plan
        self.run = run
        """The number that the run's records carry."""
        self.random = Random(plan.seed)
        self.mqtt_version = 5
        self.product = ""
        """The broker's name for itself; empty: it does not say."""
        self.trouble_ns: int | None = None
        """When the trouble began, on the monotonic clock."""

    def dialogue(self, name: str) -> Dialogue:
        place = self.place
        if place.protocol == "amqp":
            return AmqpDialogue(name, place.user, place.password, place.virtual_host)
        return MqttDialogue(name, place.user, place.password, self.mqtt_version)


# -- client ------------------------------------------------------------------------------------------------------------


LOOK_S = 0.025
ANSWER_BYTES = 256
"""A read takes no more while it waits for an answer, so that few records are read with it."""
SAVED_S = 0.25
"""A paced reader that finds nothing saves up the pace of this long at most."""
READ_ON_S = 1.0
"""For how long a client in trouble reads on at the end, to see what was said to it."""


class End(NamedTuple):
    """How a connection ended that the client did not end itself."""

    after_s: float | None
    """Since it was let in; None: it noticed only when it read on, at the end."""
    words: str


class Client:
    def __init__(self, stage: Stage, kind: str, number: int, *, from_start: bool = False) -> None:
        self.stage, self.kind = stage, kind
        self.name = f"{stage.plan.name}-{kind}-{number}"
        self.tally = Tally(stage.run, stage.trouble_ns, from_start=from_start)
        self.connections = 0
        self.ends: list[End] = []
        self.refusals: list[str] = []
        """The words of each refused connection."""
        self.ack_after_s = 0.0
        """How long it takes over a record; inf: it never acknowledges one."""
        self.pings = True
        self.note = ""
        self.age_s: float | None = None
        """The age of the latest record that it had seen when the trouble was over."""
        self.seen = 0
        """The records that it had seen by then."""
        self.line: Line | None = None
        self.dialogue = stage.dialogue(self.name)
        """That of the connection, or of the last one."""
        self._since_s = 0.0
        self._ended_s: float | None = None
        self.unacknowledged = self.unacknowledged_most = 0
        """Deliveries that it has not acknowledged, now and at most."""
        self._held: deque[tuple[float, int]] = deque()

    # -- connecting ---------------------------------------------------------------------------------------------------

    async def connect(
        self, filters: Sequence[str] | None = None, *, acked: bool = False, window: int | None = None,
        receive_buffer: int | None = None, publishes: bool = False,
    ) -> None:  # fmt: skip
        """Connects, and subscribes to the plan's filters or to these. Raises Gone with the broker's words."""
        try:
            async with asyncio.timeout(ANSWER_S):
                self.line = await open_line(self.stage.place, receive_buffer)
                dialogue = self.dialogue = self.stage.dialogue(self.name)
                dialogue.open(window)
                await self._until_granted(dialogue, "greeted")
                self.connections += 1
                self._since_s = time.monotonic()
                if publishes:
                    dialogue.prepare()
                    self.flush()
                    return
                dialogue.subscribe(self.stage.plan.filters if filters is None else filters, acked=acked)
                await self._until_granted(dialogue, "granted")
        except TimeoutError:
            self._refused(f"no answer within {ANSWER_S:g} s")
        except (OSError, Gone) as error:
            self._refused((getattr(error, "strerror", None) or str(error)).lower())

    async def _until_granted(self, dialogue: Dialogue, what: str) -> None:
        assert self.line is not None
        self.flush()
        while not getattr(dialogue, what):
            await self.line.readable()
            self.took(self.line.take(ANSWER_BYTES))

    def _refused(self, words: str) -> None:
        self.close()
        self.refusals.append(words)
        raise Gone(words)

    # -- reading ------------------------------------------------------------------------------------------------------

    def took(self, data: bytes) -> None:
        """Handles bytes. Raises Gone."""
        deliveries = self.dialogue.take(data)
        now_ns = time.monotonic_ns()
        for one in deliveries:
            self.tally.add(one.payload, now_ns)
        tags = [one.tag for one in deliveries if one.tag]
        if self.ack_after_s:
            self.unacknowledged += len(tags)
            self.unacknowledged_most = max(self.unacknowledged_most, self.unacknowledged)
            if self.ack_after_s != inf:
                self._held.extend((now_ns / 1e9 + self.ack_after_s, tag) for tag in tags)
        elif tags:
            self.dialogue.acknowledge(tags)
        self.flush()
        if self.dialogue.over:
            raise Gone(self.dialogue.over)

    async def read(self) -> None:
        """Reads all that comes, as soon as it comes. Raises Gone."""
        assert self.line is not None
        while True:
            await self.line.readable()
            self.took(self.line.take(READ_BYTES))

    async def read_at(self, rate: float = inf) -> None:
        """Reads so many bytes a second, and acknowledges what is due. Raises Gone."""
        assert self.line is not None
        allowance, last = 0.0, time.monotonic()
        while True:
            now = time.monotonic()
            allowance = inf if rate == inf else min(allowance + rate * (now - last), rate * SAVED_S)
            last = now
            while allowance >= 1 and (data := self.line.take(allowance)):
                allowance -= len(data)
                self.took(data)
            self._settle(now)
            self._look(self.line)
            await asyncio.sleep(LOOK_S)

    def _settle(self, now: float) -> None:
        tags = []
        while self._held and self._held[0][0] <= now:
            tags.append(self._held.popleft()[1])
        if tags:
            self.dialogue.acknowledge(tags)
            self.unacknowledged -= len(tags)
            self.flush()

    async def stay(self) -> None:
        """Reads nothing, and notices no more than its kernel is told."""
        while self.line is not None:
            self._look(self.line)
            await asyncio.sleep(LOOK_S)

    def _look(self, line: Line) -> None:
        if self._ended_s is None and line.ended:
            self._ended_s = time.monotonic()

    async def read_on(self) -> None:
        """Reads what there is at the end, to hear the broker's last words."""
        try:
            async with asyncio.timeout(READ_ON_S):
                await self.read()
        except TimeoutError:
            pass
        except Gone as error:
            self.was_cut(str(error), late=self._ended_s is None)

    # -- writing, and the end -----------------------------------------------------------------------------------------

    def flush(self) -> None:
        if self.line is not None and self.dialogue.out:
            self.line.write(self.dialogue.out)
            self.dialogue.out.clear()

    def ping(self) -> None:
        if self.pings and self.connected:
            self.dialogue.ping()
            self.flush()

    @property
    def connected(self) -> bool:
        return self.line is not None

    def was_cut(self, words: str, *, late: bool = False) -> None:
        """Notes an end. ``late``: nobody knows when it was."""
        if self.line is None:
            return  # it was refused, which is noted
        self.ends.append(End(None if late else (self._ended_s or time.monotonic()) - self._since_s, words))
        self.close()

    def see(self, now_ns: int) -> None:
        """Notes how much it saw, and how old that is."""
        self.seen = self.tally.records
        seen_ns = self.tally.last_sent_ns
        self.age_s = None if seen_ns is None else max(0.0, (now_ns - seen_ns) / 1e9)

    def reset(self) -> None:
        """Ends the connection without a word."""
        if self.line is not None:
            self.line.reset()
            self._forget()

    def close(self) -> None:
        if self.line is None:
            return
        if self.dialogue.greeted and not self.dialogue.over:
            self.dialogue.goodbye()
            self.flush()
        self.line.close()
        self._forget()

    def _forget(self) -> None:
        self.line = None
        self._ended_s = None
        self._held.clear()
        self.unacknowledged = 0
        self.tally.start_anew()


# -- publisher ---------------------------------------------------------------------------------------------------------
#
# A publisher of the run: numbered and stamped records, at a rate, evenly or in bursts.
#
# A record is stamped when it is handed to the socket, never before, so a broker that holds its publisher back shows in
# the rate and in the seconds that it was held up, and not in the delays of records that nobody had sent yet.


TICK_S = 0.005
MADE_UP_S = 0.5
"""A publisher that was held up makes up for this much at most."""
AT_ONCE = 256
"""Records that are written before the loop's other tasks get their turn."""


class Span:
    """A publisher's figures of one part of the run."""

    def __init__(self) -> None:
        self.seconds = self.blocked_s = 0.0
        self.sent = 0


class Publisher:
    def __init__(self, client: Client, topics: Sequence[str], first_topic: int = 0, burst_s: float = 0.0) -> None:
        """``burst_s``: it sends what is due in so many seconds at once; 0: evenly."""
        self.client = client
        self._topics, self._first_topic = topics, first_topic
        self._burst_s = burst_s
        self._owed = self._quiet_s = 0.0
        self._last_s: float | None = None
        self.sent = [0] * len(topics)
        """Records of each topic."""
        self.before, self.beside = Span(), Span()
        self.held_by: set[str] = set()
        """The broker's words for why it had to wait."""

    async def run(self) -> None:
        """Publishes until it is cancelled. Raises Gone."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._hear())
            while True:
                await asyncio.sleep(TICK_S)
                self._publish()

    async def _hear(self) -> None:
        """Goes on at once where a confirm makes room: the next tick may be late."""
        client = self.client
        while client.line is not None:
            await client.line.readable()
            client.took(client.line.take())
            self._publish()

    def _publish(self) -> None:
        """Sends what is due, as far as there is room for it."""
        rate, now = self.client.stage.plan.rate, time.monotonic()
        passed, self._last_s = now - (now if self._last_s is None else self._last_s), now
        span = self.before if self.client.stage.trouble_ns is None else self.beside
        span.seconds += passed
        self._quiet_s += passed
        self._owed = min(self._owed + rate * passed, rate * max(MADE_UP_S, 2 * self._burst_s))
        if self._quiet_s < self._burst_s:
            return
        records = min(int(self._owed), AT_ONCE)
        sent = self._send(records)
        span.sent += sent
        self._owed -= sent
        span.blocked_s += passed if sent < records else 0.0
        if self._owed < 1:
            self._quiet_s = 0.0

    def _send(self, records: int) -> int:
        """Returns how many there was room for."""
        client, dialogue = self.client, self.client.dialogue
        if client.line is None or client.line.full:
            return 0
        if dialogue.held:
            self.held_by.add(dialogue.held)
            return 0
        confirmed = bool(client.stage.plan.qos) and not self._burst_s
        records = min(records, dialogue.window - dialogue.unconfirmed) if confirmed else records
        for _ in range(records):
            topic = sum(self.sent) % len(self._topics)
            stamp = Stamp(client.stage.run, self._first_topic + topic, self.sent[topic], time.monotonic_ns())
            payload = write_stamp(stamp, client.stage.plan.size_bytes)
            dialogue.publish(self._topics[topic], payload, confirmed=confirmed)
            self.sent[topic] += 1
        client.flush()
        return max(0, records)

    async def settle(self, seconds: float) -> None:
        """Waits for confirms that are still due, so long at most."""
        deadline = time.monotonic() + seconds
        client = self.client
        while client.line is not None and client.dialogue.unconfirmed:
            if time.monotonic() > deadline:
                return
            client.took(client.line.take())
            await asyncio.sleep(TICK_S)
