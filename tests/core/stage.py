"""A small stage for one story each: the real broker and MQTT dialect, a clock that only the story moves, and pretended
sockets and disk. What a consumer asserts on is what it read, as a client would have taken it apart.

Time goes in steps of ``STEP_S``; the broker ticks with each sweep, every second one by default, as the server's loop
would have it. A consumer with ``reads = inf`` reads everything in the turn it came; any other reads so many bytes a
second from a socket that holds ``buffer`` bytes.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from math import inf
from pathlib import Path
from random import Random
from typing import Any

from bench.wires.packets import connect, encode_publish
from tests.sim.disk import Disk
from tests.sim.model import Seen, take_apart
from tests.sim.outlet import PretendedOutlet
from tests.sim.stream import as_publish, frame_length

from headway.core.base.errors import Reason
from headway.core.base.units import parse_duration, parse_share, parse_size
from headway.core.broker import SWEEP_S, Broker
from headway.core.consumer import (
    ConnectRequest,
    Pace,
    PeerState,
    Session,
    SubscribeRequest,
    Subscription,
    parse_options,
)
from headway.core.consumer.effects import CloseConsumer, Disconnect, Pause, PluginFailed, Resume, Spill
from headway.core.log.lanes.pool import Pool, Shares
from headway.core.log.states import StateTerms
from headway.core.message.record import Properties, Run
from headway.core.policy.evaluation import FlapControl
from headway.core.policy.rules.rule import parse_policies
from headway.core.queue.queue import queue_of
from headway.core.receipts import TraceSampling
from headway.core.routing.registry import Limits
from headway.core.telemetry import stats
from headway.server.progress.peer_progress import PeerProgress
from headway.server.progress.tcp_info import TcpInfo
from headway.wire.mqtt.decoder import MqttDecoder
from headway.wire.mqtt.dialect import MqttDialect
from headway.wire.mqtt.packets import DisconnectPacket as Goodbye
from headway.wire.mqtt.packets import Item, Publish, PublishRun
from headway.wire.mqtt.replies import Replies

STEP_S = SWEEP_S / 2
STUCK = 0.0
LANES_CHECKED = 10
TURNS_CHECKED, CHECKED_EACH = 40, 8
"""So many turns of a stage are checked, and then one in so many."""
DOCS = Path(__file__).parents[2] / "docs"
ROWS = [DOCS / "FIVE_SYSTEMS.md", *sorted((DOCS / "five-systems").glob("*.md"))]
SHARED = MqttDialect(5, 2, None, True, False)
_BLOCK = re.compile(r"^```toml\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def terms_of(topic: dict[str, Any]) -> StateTerms:
    """What a ``[[topic]]`` says."""
    durations = {name: parse_duration(topic[name]) for name in ("conflate", "expire") if name in topic}
    plain = {name: value for name, value in topic.items() if name not in durations}
    return StateTerms(**plain, **{f"{name}_s": value for name, value in durations.items()})


def documented(row: str) -> str:
    """The TOML that the pages of the five systems give for a row: what people copy is what is tested."""
    blocks = [block for page in ROWS for block in _BLOCK.findall(page.read_text()) if re.match(rf"# {row}\b", block)]
    assert len(blocks) == 1, f"{len(blocks)} blocks of the five systems begin with '# {row}'"
    return str(blocks[0])


class Socket(PretendedOutlet):
    """Takes all there is room for. The client reads what it drains."""

    __slots__ = ("fresh", "progress", "state")
    progress: PeerProgress | None
    """What the kernel tells of a client on the broker's host: how much it has read, and when. None: it is elsewhere."""

    def __init__(self, *how: Any) -> None:
        super().__init__(*how)
        self.fresh, self.progress = False, None

    def pace(self, now: float) -> Pace:
        if self.progress is None:
            return super().pace(now)
        info = TcpInfo.__new__(TcpInfo)
        for name in TcpInfo.__slots__:
            setattr(info, name, 0)
        info.exact, info.acked_bytes, info.read_bytes = True, self.taken, self.drained
        self.progress.look(info, now, self.progress_s, self.blocked)
        since = self.progress.stands_since_s(self.progress_s) if self.blocked else inf
        unread_bytes = self.taken - self.drained
        return Pace(since, self.progress.usual_pause_s, unread_bytes, self.progress.lump_bytes() if self.blocked else 0)

    def freshen(self, *, soon: bool = False) -> None:
        self.fresh = True

    def seen_bytes(self) -> int:
        return self.drained

    def peer(self) -> PeerState:
        return self.state


class Client:
    """A connection and what was read from it."""

    def __init__(self, stage: Stage, name: str, *, reads: float, buffer: int, version: int, acks: bool, queue: float,
                 request: ConnectRequest) -> None:
        self.stage = stage
        self.name = name
        self.reads = reads
        self.buffer = buffer
        self.version = version
        self.acks = acks
        self.queue = queue
        """How many packets the application lets pile up before nothing more is read."""
        self.handles = inf if queue == inf else 0.0
        """How many packets the application handles in a second, where it has a queue."""
        self.handled = 0.0
        self.request = request
        self.seen: list[Seen] = []
        self.goodbye: Goodbye | None = None
        self.paused = False
        self.allowance = 0.0
        self.connect()

    def connect(self) -> None:
        """Raises :class:`Refused`."""
        self.outlet = Socket(self.stage.now, self.buffer, Random(0), 0.0, self._took)
        self.outlet.state = PeerState(window_closed=self.reads == STUCK)
        self.session: Session = self.stage.broker.connect(self.request, self.outlet, self.stage.now)
        self._frames: list[tuple[int, Item]] = []
        self._tail, self._taken = bytearray(), 0
        self._decoder = MqttDecoder(role="client", version=self.version)
        self._decoder.feed(b"\x20\x03\0\0\0" if self.version == 5 else b"\x20\x02\0\0")
        self._sends = MqttDecoder(topic_alias_max=0)
        self._sends.feed(connect(self.name, self.version))
        self.goodbye = None
        self.stage.clients[self.name] = self

    @property
    def connected(self) -> bool:
        return self.session.outlet is self.outlet

    @property
    def payloads(self) -> list[str]:
        return [seen.payload.decode() for seen in self.seen]

    @property
    def numbers(self) -> list[int]:
        """Which of ``publish``'s records it was given."""
        return [int(text.split()[0]) for text in self.payloads]

    @property
    def gap_told(self) -> dict[str, int]:
        """Records it was told of as left out, by reason."""
        told: dict[str, int] = {}
        for seen in self.seen:
            if seen.gap is not None:
                told[seen.gap.reason] = told.get(seen.gap.reason, 0) + seen.gap.records
        return told

    def subscribe(self, filter: str, qos: int = 0, **options: str) -> Subscription:
        """As SUBSCRIBE with these user properties does."""
        pairs = [({"from_": "from"}.get(name, name), value) for name, value in options.items()]
        parsed = parse_options(pairs)
        dialect = MqttDialect(self.version, qos, None, False, parsed.offsets)
        request = SubscribeRequest(filter, dialect, SHARED, qos, options=parsed)
        return self.stage.broker.subscribe(self.session, request, self.stage.now)

    def publish(self, topic: str, first: int, count: int = 1, *, size: int = 100, key: str = "", qos: int = 0,
                priority: int | None = None, receipt: str | None = None, reply_to: str | None = None,
                expiry_s: int | None = None, empty: bool = False, traceparent: str | None = None) -> bool:
        """So many records, numbered (``empty``: without payload); False (and nothing) while the broker does not read
        this client."""
        if self.paused:
            return False
        user = () if priority is None else (("priority", str(priority)),)
        user += () if receipt is None else (("receipt", receipt),)
        user += () if traceparent is None else (("traceparent", traceparent),)
        properties = Properties(user=(*user, ("key", key)) if key else user, response_topic=reply_to,
                                correlation_data=b"my number" if reply_to else None)
        texts = [f"{number} {key}".encode().ljust(size, b".") for number in range(first, first + count)]
        texts = [b""] * count if empty else texts
        data = b"".join(
            encode_publish(topic, text, version=self.version, qos=qos, packet_id=number % 65_535 + 1 if qos else 0,
                           properties=properties, expiry_s=expiry_s)
            for number, text in enumerate(texts)
        )  # fmt: skip
        runs = self.runs(data)
        for run in runs:
            run.expires_s = inf if expiry_s is None else self.stage.now + expiry_s
        self.stage.broker.publish(self.session, runs, self.stage.now)
        return True

    def runs(self, data: bytes) -> list[Run]:
        """The messages in what this client sends."""
        return [item if isinstance(item, Run) else item.run for item in self._sends.feed(data)
                if isinstance(item, Run | Publish | PublishRun)]  # fmt: skip

    def leave(self) -> None:
        """The connection is gone without a word."""
        self.stage.broker.disconnect(self.session, self.outlet, Reason.CLIENT_GONE, self.stage.now)

    # -- reading ----------------------------------------------------------------------------------------------------

    def _took(self, data: bytes) -> None:
        self._tail += data
        while (size := frame_length(self._tail)) and len(self._tail) >= size:
            self._taken += size
            items = self._decoder.feed(bytes(self._tail[:size]))
            assert self._decoder.error is None, self._decoder.error
            del self._tail[:size]
            self._frames += [(self._taken, item) for item in items]

    def read(self, limit: float) -> bool:
        """Read so many bytes, as far as the application's queue has room. Whether there were any."""
        outlet = self.outlet
        count = int(min(outlet.taken - outlet.drained, limit))
        if self.queue != inf:
            free = int(self.queue + self.handled - len(self.seen))
            count = min(count, self._frames[free - 1][0] - outlet.drained if 0 < free <= len(self._frames) else
                        count if free > 0 else 0)
        if count <= 0:
            return False
        outlet.drained += count
        self._arrived(outlet.drained)
        if outlet.waits and self.connected:
            outlet.waits = False
            self.stage.broker.writable(self.session, self.stage.now)
        return True

    def _arrived(self, upto: float) -> None:
        while self._frames and self._frames[0][0] <= upto:
            _, item = self._frames.pop(0)
            if isinstance(item, Goodbye):
                self.goodbye = item
            publish = as_publish(item)
            if publish is None:
                continue
            self.seen.append(take_apart(publish))
            if self.acks and publish.qos and self.connected:
                self.stage.broker.acknowledge(self.session, publish.packet_id, self.stage.now)

    def acknowledge(self, count: int = 1) -> None:
        """The oldest deliveries in flight are settled."""
        self.stage.broker.acknowledge_all(self.session, list(self.session.channel.in_flight)[:count])

    def hears_the_end(self, effect: Disconnect) -> None:
        """The server's farewell: what the socket held, the rest of a record, the reason. It reads all of it at last."""
        if effect.rest is None:  # it is reset in the middle of a record that is too large to be read back for it
            assert self._tail, "a last word would have found its place"
            self.outlet.open = False
            return
        last = bytes(effect.rest) + bytes(self.outlet.out)
        self._took(last + (Replies(self.version).disconnect_for(effect.reason, effect.text) or b""))
        assert not self._tail, "cut off in the middle of a frame"
        self.outlet.open = False
        self._arrived(inf)

    def pass_time(self) -> bool:
        """Whether anything was read."""
        before = self.outlet.drained
        if self.handles != inf:
            self.handled = min(len(self.seen), self.handled + self.handles * STEP_S)
        if self.reads != inf:
            self.allowance = min(self.allowance + self.reads * STEP_S, self.buffer + self.reads)
            while self.allowance >= 1:
                had = self.outlet.drained
                if not self.read(self.allowance):
                    break
                self.allowance -= self.outlet.drained - had
        return self.outlet.drained != before


UNCHECKED: set[Stage] = set()
"""Stages whose last turn was not checked; each is when its test is over (tests/conftest.py)."""


class Stage:
    """A broker set up as a config would have it: ``[pool]``, ``[listeners.NAME.pool]``, ``[flap]``, ``[[topic]]`` and
    ``[[policy]]``. ``pool`` replaces ``[pool]``, for limits that a test can reach."""

    def __init__(self, toml: str = "", *, traces: TraceSampling | None = None, **pool: str) -> None:
        tables = tomllib.loads(toml)
        assert set(tables) <= {"pool", "listeners", "flap", "topic", "policy", "server"}, tables
        sweep_s = parse_duration(tables.get("server", {}).get("sweep", SWEEP_S))
        self._tick_steps = max(1, round(min(sweep_s, SWEEP_S) / STEP_S))
        self.now = 1000.0
        self._steps = 0
        written = {k: v for k, v in tables.get("pool", {}).items() if "%" not in str(v)}
        pools = {"": _pool("global", {"connection": written.get("connection")} | pool if pool else written)}
        limits = {"": Limits()}
        for name, table in tables.get("listeners", {}).items():
            if table.get("pool", {}).keys() == {"max_client_share"}:
                limits[name] = Limits(shares=Shares(parse_share(table["pool"]["max_client_share"]), 0.5))
            elif "pool" in table:
                pools[name] = _pool(name, table["pool"])
        topics = tables.get("topic", [])
        for topic in [topic for topic in topics if "pool" in topic]:
            filter, table = topic["filter"], topic.pop("pool")
            size, disk = parse_size(table["memory"]), parse_size(table["disk"])
            pools[f"topic {filter}"] = Pool(f"topic {filter}", size, disk, 1.0, topic=filter)
        priorities = {topic["filter"]: topic.pop("priority") for topic in topics if "priority" in topic}
        for filter in [*pools, *priorities]:
            if {"filter": filter.removeprefix("topic ")} in topics:
                topics.remove({"filter": filter.removeprefix("topic ")})
        flap = {f"{name}_s": parse_duration(value) for name, value in tables.get("flap", {}).items()}
        self.broker = Broker(limits, pools, parse_policies(tables.get("policy", [])), flap=FlapControl(**flap),
                             sweep_s=sweep_s, traces=traces, priorities=priorities)  # fmt: skip
        self.pool = pools[""]
        for topic in topics:
            self.broker.declare_state(terms_of(topic))
        self.disk = Disk(Random(0), 0.0, 0.0, 0.0)
        self.clients: dict[str, Client] = {}
        self.spills: list[Spill] = []
        self.asked_to_close: list[str] = []
        self.failed: list[PluginFailed] = []
        self.checked = 0
        """How many lanes have been checked."""
        self._turns = 0
        self.checks = True
        self.monitor = self.client("the monitor")
        self.monitor.subscribe("$SYS/headway/#")

    def client(self, name: str, *, reads: float = inf, buffer: int = 2000, version: int = 5, window: int = 65_535,
               acks: bool = True, queue: float = inf, expiry_s: float = 0.0, listener: str = "") -> Client:
        protocol = "mqtt5" if version == 5 else "mqtt3.1.1"
        request = ConnectRequest(name, listener, False, expiry_s, window, protocol=protocol)
        return Client(self, name, reads=reads, buffer=buffer, version=version, acks=acks, queue=queue, request=request)

    def consumer(self, name: str, filter: str, qos: int = 0, *, options: dict[str, str] | None = None, **how: Any
                 ) -> Client:
        client = self.client(name, **how)
        client.subscribe(filter, qos, **(options or {}))
        return client

    def told(self, kind: str, client: str | None = None) -> list[dict[str, Any]]:
        """Advisories of a kind, as whoever subscribes to them reads them."""
        self.turn()
        found = [json.loads(s.payload) for s in self.monitor.seen if s.topic.startswith(f"$SYS/headway/{kind}/")]
        return [one for one in found if client in (None, one["client"])]

    def stats(self, client: Client) -> stats.ConsumerStats:
        return next(one for one in stats.consumers(self.broker, self.now) if one.client == client.name)

    def stats_of(self, name: str) -> list[stats.ConsumerStats]:
        """Of every subscription of this client."""
        return [one for one in stats.consumers(self.broker, self.now) if one.client == name]

    # -- the loop ---------------------------------------------------------------------------------------------------

    def run(self, seconds: float) -> None:
        """Let time pass, and nothing else happen."""
        for _ in range(round(seconds / STEP_S)):
            self._step(False)

    def steps(self, seconds: float) -> Iterator[float]:
        """Let time pass; what the story does between two steps goes out before the next."""
        for _ in range(round(seconds / STEP_S)):
            self._step(True)
            yield self.now
            self.turn()

    def _step(self, moved: bool) -> None:
        """A step of time. ``moved``: see ``turn``."""
        self._steps += 1
        self.now = round(self.now + STEP_S, 6)
        for client in list(self.clients.values()):
            moved |= client.pass_time()
        if self.disk.work(self.broker, self.now):
            self._carry_out()
            moved = True
        if self._steps % self._tick_steps == 0:
            self.tick()
            moved = True
        self.turn(moved)

    def tick(self) -> None:
        """A tick, and the looks that it leaves to the turns after it."""
        self.broker.tick(self.now)
        self._carry_out()
        while self.broker.governor.sweeping:
            self.broker.governor.go_on(self.now, 0)
            self._carry_out()

    def hang(self, seconds: float) -> None:
        """The broker's own loop does nothing for so long."""
        self.now += seconds
        self.tick()
        self.turn()

    def turn(self, moved: bool = True) -> bool:
        """``moved``: something may have changed since the last check. A step in which nothing does has none, as no
        invariant depends on the time: stories of many minutes are mostly such steps. Returns whether it checked: of a
        long story it does now and then, and always when its test is over."""
        for _ in range(10_000):
            moved |= self.broker.has_work
            self.broker.flush(self.now)
            moved |= self._carry_out()
            busy = [client.read(inf) for client in list(self.clients.values()) if client.reads == inf]
            if not any(busy) and not self.broker.has_work:
                return self.checks and moved and self._checked()
            moved = True
        raise AssertionError("the turn does not end")

    def _checked(self) -> bool:
        self._turns += 1
        if self._turns > TURNS_CHECKED and self._turns % CHECKED_EACH:
            UNCHECKED.add(self)
            return False
        self.check()
        return True

    def check(self) -> None:
        """The broker's own invariants: of all pools, live pages, and LANES_CHECKED lanes, each time the next ones."""
        UNCHECKED.discard(self)
        feeds = list(self.broker.registry.router.feeds.values())
        for number in range(self.checked, self.checked + min(len(feeds), LANES_CHECKED)):
            feed = feeds[number % len(feeds)]
            feed.lane.check()
            for queue in map(queue_of, feed.queues):
                queue.backlog.check()
                queue.members.check()
        self.checked += LANES_CHECKED
        for pool in self.broker.registry.distinct_pools():
            pool.check([feed.lane for feed in feeds if feed.lane.pool is pool])
        self._check_clients()
        for session in self.broker.registry.sessions.values():
            session.channel.check()
        for pages in self.broker._turn._live._pages.values():
            if pages.built:
                pages.check()

    def _check_clients(self) -> None:
        """What clients take up besides records is what their tabs, kept orders and aggregates say."""
        registry = self.broker.registry
        counted = Counter[Pool]()
        for tab in (registry.declared, *(session.tab for session in registry.numbers.values())):
            counted[tab.pool] += tab.bytes
        for order in self.broker.orders._orders.values():
            if not order.gone:
                order.check()
            counted[order.state.pool] += order.bytes
        wills = bool(registry.deferred or self.broker.admission.waiting_wills)  # some may be on their way
        for pool in registry.distinct_pools():
            others = pool.clients_bytes - counted[pool] - pool.groups_bytes
            assert others >= 0 if wills else others == 0, f"{others} bytes of {pool.name} are nobody's"

    def _carry_out(self) -> bool:
        """Whether there was anything."""
        effects = self.broker.take_effects()
        for effect in effects:
            match effect:
                case Disconnect(session, _, reason, _, _):
                    client = self.clients[session.client]
                    client.hears_the_end(effect)
                    self.broker.disconnect(session, effect.outlet, reason, self.now)
                case Spill():
                    self.spills.append(effect)
                    self.disk.submit(effect, self.now)
                case CloseConsumer(subscription, _):
                    self.asked_to_close.append(subscription.session.client)
                case PluginFailed():
                    self.failed.append(effect)
                case Pause(session=session) | Resume(session):
                    self.clients[session.client].paused = isinstance(effect, Pause)
        return bool(effects)


def _pool(name: str, table: dict[str, Any]) -> Pool:
    assert set(table) <= {"memory", "disk", "disk_path", "max_client_share", "connection", "free"}, table
    return Pool(name, parse_size(table.get("memory", "64MB")), parse_size(table.get("disk", "64MB")),
                parse_share(table.get("max_client_share", "50%")), parse_size(table.get("free", "16MB")),
                connection=bool(table.get("connection")))


def run_to(topic: str) -> Run:
    """One record."""
    decoder = MqttDecoder(topic_alias_max=0)
    decoder.feed(connect("publisher", 5))
    (run,) = decoder.feed(encode_publish(topic, b"x"))
    assert isinstance(run, Run)
    return run
