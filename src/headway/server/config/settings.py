"""The tables of a config, one class each. Attributes carry their unit (``_bytes``, ``_s``); keys in the file do not.

The defaults here are those of ``defaults.toml``; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field

from headway.core.allowance import UserLimits
from headway.core.base import ConfigError, format_duration
from headway.core.log import Shares, StateTerms
from headway.core.message import BadTopic, KeyExtractor, compile_key, covers, table_name, validate_filter
from headway.core.permission import Permission
from headway.core.policy import HTTP_LISTENER, Policy
from headway.core.receipts import TraceSampling
from headway.server.config import host_limits
from headway.server.config.auth.tables import AuthTable, LimitTable, PermissionTable
from headway.server.config.fields import (
    LOOPBACK,
    AdminUrl,
    CollectorUrl,
    Column,
    Filter,
    Fsync,
    HeaderName,
    HeaderValue,
    Identifier,
    Keep,
    Keep_,
    Key,
    ListenerUrl,
    Memory,
    Name,
    Network,
    Network_,
    Order,
    Origin,
    PageOrigin,
    Path_,
    Share,
    Table,
    Text,
    Topic,
    TopicPool_,
    Url,
    WebPath,
    count,
    duration,
    memory,
    one_of,
    shown,
    size,
)
from headway.server.config.tls import TlsTable
from headway.server.protocols import PROTOCOLS
from headway.store.toml import quoted

# -- embedding ---------------------------------------------------------------------------------------------------------
#
# The config of a broker inside a program (``headway.embed``): the tables of a file, with what differs there.
#
# Rules:
# - No port is opened that the config does not name: without ``[listeners]`` there are none, and no admin API.
# - ``[listeners.asgi]`` is for clients that come through the program's own web server. It has no URL; its other keys
# are
#   those of any listener, and may be left out.
# - Policies may name ``asgi``, and ``program`` for the program's own subscriptions.


ASGI_LISTENER = "asgi"
PROGRAM_LISTENER = "program"
"""The listener of subscriptions and publishers in the program itself."""
_NOWHERE = "ws://127.0.0.1:0"
"""Stands for the address, which is the web server's: a WebSocket, and on loopback as far as the checks here can say."""


def of_a_program(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the tables of a file as they are meant in a program. Raises ConfigError."""
    found = dict(tables)
    server, listeners = found.get("server", {}), found.get("listeners", {})
    if isinstance(server, Mapping):
        found["server"] = {"admin": False} | dict(server)
    if isinstance(listeners, Mapping):
        pages = listeners.get(ASGI_LISTENER, {})
        if isinstance(pages, Mapping):
            if "url" in pages:
                raise ConfigError(f"listeners.{ASGI_LISTENER}.url: it has none: the address is the web server's")
            pages = {"url": _NOWHERE} | dict(pages)
        found["listeners"] = {**listeners, ASGI_LISTENER: pages}
    return found


# -- recording ---------------------------------------------------------------------------------------------------------
#
# ``headway serve --record FILTER``: a config that keeps the records of topics, without writing one.


KEEP = "1d"


def recording_text(text: str, filters: Sequence[str], folder: Path) -> str:
    """Returns the config ``text`` with a journal in ``folder`` and a recorded topic for each filter. Raises
    ConfigError."""
    for filter in filters:
        try:
            validate_filter(filter)
        except BadTopic as error:
            raise ConfigError(f"--record {filter}: {error}") from None
    topics = [f"[[topic]]\nfilter = {quoted(filter)}\nkeep = {quoted(KEEP)}\n" for filter in filters]
    return "\n".join([text, f"[journal]\npath = {quoted(str(folder))}\n", *topics])


# -- traces ------------------------------------------------------------------------------------------------------------
#
# ``[traces]``: where spans of sampled records go, and how many records are followed.


class TracesTable(Table):
    """``[traces]``"""

    enabled: bool = True
    """``false`` turns it off and leaves the rest as it is."""
    endpoint: CollectorUrl = "http://127.0.0.1:4318"
    """The collector, by OTLP over HTTP; without a path ``/v1/traces`` is meant."""
    headers: dict[HeaderName, HeaderValue] = Field(default_factory=dict)
    """Sent along with each request, such as ``{ authorization = "Bearer …" }``."""
    service: Name | None = None
    """``service.name`` of the spans.

    Default: the broker's name."""
    ratio: Share = 1.0
    """The share of the sampled traces that the broker follows: ``0.1``, ``"10%"``. The trace's id decides, so a trace
    is followed as a whole."""
    per_second: Annotated[int, count(1, 1_000)] = 100
    """Records a second that are followed, at most 1,000; the others have no span, and are counted."""
    wait_s: Annotated[float, duration(1.0, 3600.0)] = Field(default=30.0, alias="wait")
    """How long a record is followed. Consumers that have not got it by then are told as ``waiting``."""
    timeout_s: Annotated[float, duration(0.1, 60.0)] = Field(default=10.0, alias="timeout")
    """How long the collector may take for a request, with all tries."""
    waiting_max: Annotated[int, count(1, 100_000)] = 1_000
    """Traces that wait for the collector; beyond these they are dropped and counted."""

    @property
    def url(self) -> str:
        """The whole address: without a path, that of the protocol is meant."""
        parts = urlsplit(self.endpoint)
        return parts._replace(path="/v1/traces").geturl() if parts.path in ("", "/") else self.endpoint

    def sampling(self) -> TraceSampling:
        return TraceSampling(self.ratio, self.per_second, self.wait_s)


# -- settings ----------------------------------------------------------------------------------------------------------


KIB, MIB = 1024, 1024 * 1024
DAY_S = 86_400.0
DISK_BYTES = 1_000_000_000
MQTT_PACKET_BYTES_MAX = 268_435_460
WEB_PATHS = ("/mqtt", "/stomp", "/ws", "/")
EXPIRY_MAX_S = 4_294_967_294.0
KEEP_ALIVE_S = 64_800.0


class ServerTable(Table):
    """``[server]``"""

    name: Name = "headway"
    """A name for this broker (in the admin API's answers)."""
    admin: AdminUrl = Url("http", "127.0.0.1", 9883)
    """Metrics, ``top``, ``why``; ``false``: none. Beyond loopback: ``https://``, with users, tokens or certificates."""
    send_buffer_bytes: Annotated[int, size(4_000, 64_000_000)] = Field(default=256 * KIB, alias="send_buffer")
    """The kernel's buffer per connection. Records in it can no longer be conflated or discarded, so little of it is
    used for slow readers (docs/POLICIES.md#fresh-records) to whom this happens."""
    read_bytes: Annotated[int, size(4_000, 16_000_000)] = Field(default=240 * KIB, alias="read_size")
    """The most that one read takes from a connection. It is a little less than ``send_buffer``, so that the records of
    one read go to each consumer in one ``send``. While a consumer of its records lags, a read takes no more than three
    eighths of ``send_buffer``: a kernel that has room for two reads need not have passed on all of the last one. That
    does not count where more than 170 consumers do not lag. While several clients publish as fast as they are read, all
    reads are as small, for everybody else waits for them."""
    sweep_s: Annotated[float, duration(0.01, 3600.0)] = Field(default=0.2, alias="sweep")
    """How often lagging consumers are sampled, from 10 ms to an hour. Rules act at a sample, so ``keep_records`` and
    the like are kept as well as that; memory is protected all the time."""
    late_after_s: Annotated[float, duration(0.01, 60.0)] = Field(default=0.25, alias="late_after")
    """While its loop is later than this, the broker judges no consumer."""
    stop_timeout_s: Annotated[float, duration(0.0, 600.0)] = Field(default=5.0, alias="stop_timeout")
    """Time for clients to read their last packet when the broker stops."""
    log: Annotated[str, one_of("text", "json")] = "text"
    """The log on standard error: ``"json"``: an object per line (docs/OPERATIONS.md#the-log)."""
    peer_sockets: bool = True
    """The kernel is asked what clients on this host have not read (netlink, ``sock_diag``): who is slow is known
    exactly, and conflated ones (docs/POLICIES.md#fresh-records) are sent what is new. ``false``, or where the kernel
    does not answer: they are judged as remote ones are."""
    drain_s: Annotated[float, duration(0.0, 3600.0)] = Field(default=0.0, alias="drain")
    """Time between the signal to stop and the stop. Everything is served meanwhile, but ``/readyz`` says 503, so that a
    load balancer sends no new clients. A second signal ends it."""
    sessions_max: Annotated[int, count(1, 10_000_000)] = 100_000
    """Sessions, including those of clients that are away."""
    cursors_max: Annotated[int, count(0, 1_000_000)] = 100
    """Cursors (``PUT /v1/cursors``) per user; in all, if there are no users."""
    writers_max: Annotated[int, count(0, 1_000_000)] = 100
    """Writers (docs/JOURNAL.md#writers-over-http) per user; in all, if there are no users."""
    reports: Path_ | None = None
    """The folder of reports that the console (docs/CONSOLE.md#reports) lists."""
    base_path: WebPath = "/"
    """The path that a proxy leaves in front of the admin API's."""
    trusted_origins: list[PageOrigin] = Field(default_factory=list)
    """Addresses at which browsers see the console through a proxy (docs/PROXIES.md), such as
    ``["https://ops.example.com"]``."""
    trusted_proxies: list[Network_] = Field(default_factory=list)
    """Proxies in front of the admin API whose ``X-Forwarded-For`` counts."""
    tls: TlsTable | None = None
    """``[server.tls]``: certificates of the admin API, with the keys of ``[listeners.NAME.tls]``."""

    @property
    def usual_read_bytes(self) -> int:
        """Returns how much is read at once while some of a few consumers lag. Each one's kernel has room for two such
        reads, even if records get longer on the way."""
        return min(self.read_bytes, self.send_buffer_bytes * 3 // 8)


class PoolTable(Table):
    """``[pool]`` and ``[listeners.NAME.pool]``. Values that are None follow from others (:class:`PoolSettings`); what a
    listener's table leaves out is as in ``[pool]``."""

    memory_bytes: Memory = Field(default_factory=lambda: memory("10%"), alias="memory")
    """Memory for waiting records and for state. A share is of the host's memory, ``ulimit -m`` or the container's
    limit, whichever is lowest.

    Default: ``"10%"``."""
    disk_bytes: Annotated[int | None, size(0, 1 << 60)] = Field(default=None, alias="disk")
    """Disk for records that no longer fit into memory; 0: none.

    Default: 1 GB, or ``memory`` if more."""
    disk_path: Path_ | None = None
    """A folder for spill files; the default of a user who cannot write to that one is ``/var/tmp/headway-UID``.

    Default: ``"/var/tmp/headway"``."""
    client_share: Share = Field(default=0.5, alias="max_client_share")
    """The most that one client may take of the memory, and then of the disk, in all of its subscriptions together, even
    if there is room."""
    user_share: Share = Field(default=0.5, alias="max_user_share")
    """The most that the clients of one user may take of what all clients may take up besides records, connected or
    away; and of the memory of queues: its queues with their bindings, so durable subscriptions over AMQP 1.0, STOMP and
    JMS as well; and of the live queries that there may be: aggregates, pages, and the orders of pages that were not
    asked for before. Where names are not checked, of one address (IPv6: of its /64). A client that leaves nothing
    behind (no session that stays, no will) may still log in, and the last sixteenth of the memory of clients is for new
    sessions alone. What is asked for beyond is refused: CONNACK and SUBACK 0x97 (3.1.1: code 3, 0x80), AMQP 506, an
    ERROR, an exception."""
    connection: bool = False
    """True: a client that is disconnected because of one of these limits loses its connection, with all of its
    subscriptions. Otherwise a client of AMQP or JMS that has consumers on other channels loses the channel of the
    consumer concerned."""
    biggest_client_first: bool = False
    """True: when memory or disk runs out, the client that holds the most of it goes first, then the next. Otherwise
    that is so for a client that holds more than any log does; else all who are furthest back in the fullest log go
    together: they share its oldest records, which are freed only when the last of them has gone."""

    @property
    def apart(self) -> bool:
        """Whether a listener with this table has a pool of its own. One that has only shares has them of ``[pool]``."""
        return not self.model_fields_set <= {"client_share", "user_share", "connection"}

    def but_for(self, other: PoolTable | None) -> PoolTable:
        """Returns this table with what is written in a listener's."""
        written = () if other is None else other.model_fields_set
        return self.model_copy(update={name: getattr(other, name) for name in written})


class ListenerTable(Table):
    """``[listeners.NAME]``"""

    url: ListenerUrl
    """Protocol and address; port 0: any free port. ``ws://127.0.0.1:8083``: a WebSocket, by its subprotocol;
    ``auto://127.0.0.1:61616``: all protocols at one port, by their first bytes; ``mqtts``, ``amqps``, ``stomps``,
    ``wss``, ``autos``: with TLS (docs/TLS.md#setting-it-up).

    Default: ``"mqtt://127.0.0.1:1883"``, ``"amqp://127.0.0.1:5672"``, ``"stomp://127.0.0.1:61613"``,
    ``"openwire://127.0.0.1:61616"``."""
    allow_anonymous_given: bool | None = Field(default=None, alias="allow_anonymous")
    """Clients without a user name may connect.

    Default: true on loopback, if there are no users."""
    connections_max: Annotated[int, count(1, 1_000_000)] = 10_000
    """The most connections. One more takes the place of one that has not logged in: its client has left, or has said
    nothing for longest. If all have logged in, it is closed at once."""
    connect_timeout_s: Annotated[float, duration(0.01, 3600.0)] = Field(default=10.0, alias="connect_timeout")
    """Time for a new connection to log in, its TLS handshake included. A client that leaves before gives its place back
    at once."""
    handshakes_max: Annotated[int, count(1, 1_000_000)] = 1_000
    """TLS handshakes under way at the same time; one more ends the one that has waited longest for its client."""
    packet_bytes_given: Annotated[int | None, size(1000, MQTT_PACKET_BYTES_MAX)] = Field(
        default=None, alias="packet_max"
    )
    """The largest packet taken; a larger one ends its connection (0x95). AMQP: the largest message (311). Before the
    login much less: 64 KiB for MQTT and JMS, 16 KiB for STOMP, 4 KiB for AMQP.

    Default: ``"1MB"``; AMQP and JMS ``"16MB"``, STOMP ``"32MB"``, or a client's share of the pool if less."""
    subscriptions_max: Annotated[int, count(1, 1_000_000)] = 10_000
    """Per session; further ones are refused (SUBACK 0x97)."""
    in_flight_given: Annotated[int | None, count(1, 65_535)] = Field(default=None, alias="in_flight_max")
    """Unacknowledged deliveries per session, even if the client permits more. Each takes 375 bytes in AMQP.

    Default: ``1_024``; AMQP, STOMP and JMS ``65_535``."""
    keep_alive_max_s: Annotated[float, duration(1.0, 65_535.0)] = Field(default=KEEP_ALIVE_S, alias="keep_alive_max")
    """The longest silence of a client: see docs/CONFIG.md#silent-clients."""
    session_expiry_max_s: Annotated[float, duration(0.0, EXPIRY_MAX_S)] = Field(
        default=7 * DAY_S, alias="session_expiry_max"
    )
    """A client that asks for more gets this."""
    path_given: WebPath | None = Field(default=None, alias="path")
    """``ws://``, ``wss://``: the path of the WebSocket; a path that is written is the only one.

    Default: ``"/mqtt"``, ``"/stomp"``, ``"/ws"`` and ``"/"``."""
    origins: list[Origin] | None = None
    """``ws://``, ``wss://``: the origins of pages that may connect: see docs/MQTT.md#browsers-websocket.

    Default: pages of this host.

    None: the pages of this host (``server/websocket/handshake.py``)."""
    compression: bool = False
    """``ws://``, ``wss://``: messages are compressed, once for all clients (``permessage-deflate``): see
    docs/MQTT.md#browsers-websocket."""
    proxy_protocol: bool = False
    """Every connection begins with a header of the PROXY protocol, version 1 or 2: see
    docs/PROXIES.md#mqtt-amqp-stomp-websockets.

    The header is read in ``server/connections/proxied.py``."""
    trusted_given: list[Network_] | None = Field(default=None, alias="trusted_proxies")
    """Addresses and networks whose word counts.

    Default: loopback for ``proxy_protocol``; none for ``X-Forwarded-For``.

    X-Forwarded-For counts only where they are given."""
    pool: PoolTable | None = None
    """``[listeners.NAME.pool]``, with the keys of ``[pool]``: a pool of its own (docs/CONFIG.md#pool), or other shares
    of the common one."""
    tls: TlsTable | None = None
    """``[listeners.NAME.tls]``, below; for ``mqtts://`` and ``amqps://``."""

    @property
    def proxies(self) -> Sequence[Network]:
        """Proxies whose PROXY header counts."""
        return LOOPBACK if self.trusted_given is None else self.trusted_given

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths of the WebSocket."""
        return WEB_PATHS if self.path_given is None else (self.path_given,)

    @property
    def packet_bytes_max(self) -> int:
        return self.packet_bytes_given or max(PROTOCOLS[name].packet_bytes_max for name in self.url.kind.protocols)

    @property
    def in_flight_max(self) -> int:
        return self.in_flight_given or max(PROTOCOLS[name].in_flight_max for name in self.url.kind.protocols)

    @property
    def beat_limit_s(self) -> float | None:
        """The longest time between two heartbeats of a client; None: no limit. The default is none: 18 hours are no
        reason to refuse clients that send no heartbeats."""
        return None if self.keep_alive_max_s >= KEEP_ALIVE_S else self.keep_alive_max_s

    def offers_beat(self, usual_s: float) -> float:
        """Returns the time between two heartbeats that the broker offers: the ``usual`` one, or less if only less is
        allowed."""
        return min(usual_s, self.keep_alive_max_s)

    def beat_fault(self, beat_s: float) -> str:
        """Returns why a client may not have this time between its heartbeats (0: it sends none); empty: it may."""
        most = self.beat_limit_s
        if most is None or 0 < beat_s <= most:
            return ""
        sends = f"a heartbeat every {format_duration(beat_s)}" if beat_s else "no heartbeats"
        return f"the client sends {sends}; keep_alive_max of this listener asks for one every {format_duration(most)}"

    def speaking(self, protocol: str) -> ListenerTable:
        """Returns the table for connections of one of several protocols, with that protocol's own limits where none are
        given."""
        if len(self.url.kind.protocols) == 1:
            return self
        codec = PROTOCOLS[protocol]
        limits = {
            "packet_bytes_given": self.packet_bytes_given or codec.packet_bytes_max,
            "in_flight_given": self.in_flight_given or codec.in_flight_max,
        }
        return self.model_copy(update=limits)

    @property
    def logs_in(self) -> bool:
        """Whether certificates say who the clients are."""
        return self.tls is not None and self.tls.logs_in

    def allows_anonymous(self, users: bool) -> bool:
        """Returns whether clients may come in without a user name: as written, else on loopback if there are no
        ``users`` and no certificates to tell who they are."""
        if self.allow_anonymous_given is None and self.logs_in:
            return False
        return not users and self.url.loopback if self.allow_anonymous_given is None else self.allow_anonymous_given


class FlapTable(Table):
    """``[flap]``"""

    base_s: Annotated[float, duration(0.0, DAY_S)] = Field(default=1.0, alias="base")
    """A client that is disconnected for slowness a second time is refused for this long, then twice as long, up to
    ``max``."""
    max_s: Annotated[float, duration(0.0, DAY_S)] = Field(default=300.0, alias="max")
    """The longest time for which such a client is refused."""
    forgive_s: Annotated[float, duration(0.0, 30 * DAY_S)] = Field(default=600.0, alias="forgive")
    """Time without trouble after which the count starts anew."""


class RetainedTable(Table):
    """``[retained]``"""

    topics_max: Annotated[int, count(0, 1_000_000_000)] = 1_000_000
    """Topics with a retained record."""
    bytes_max: Annotated[int, size(0, 1 << 60)] = Field(
        default_factory=lambda: min(256 * MIB, host_limits.memory_bytes() // 10)
    )
    """Topics, payloads and properties of retained records; beyond it a record is not retained (PUBACK 0x97), but still
    delivered. Their memory counts to the ``[pool]``, beyond the first 4 MB; at a quarter of ``pool.memory`` no more are
    retained.

    Default: 256 MiB, or a tenth of the memory if less."""


class TelemetryTable(Table):
    """``[telemetry]``: the lake of the broker's own figures."""

    enabled: bool = True
    """``false`` turns it off and leaves the rest as it is."""
    folder: Path_ = Field(default=Path("lake"), alias="path")
    """A folder; several brokers may share one."""
    disk_bytes: Annotated[int, size(1_000_000, 1 << 60)] = Field(default=1_000_000_000, alias="disk")
    """Limit of the whole lake; beyond it the oldest files are deleted."""
    every_s: Annotated[float, duration(1.0, 3600.0)] = Field(default=30.0, alias="every")
    """How often files are written; a crash loses the rows since then."""
    sample_s: Annotated[float, duration(0.1, 3600.0)] = Field(default=1.0, alias="sample")
    """Time between two rows of a lagging consumer."""
    idle_s: Annotated[float, duration(0.1, 3600.0)] = Field(default=10.0, alias="idle")
    """Time between two rows of any other consumer."""


class JournalTable(Table):
    """``[journal]``: durable records and metadata are in ``path``."""

    enabled: bool = True
    """``false`` turns it off and leaves the rest as it is."""
    folder: Path_ = Field(default=Path("/var/lib/headway"), alias="path")
    """A folder; each broker needs its own."""
    fsync: Fsync = "always"
    """``"always"``: each group of records is synced before it is confirmed; a time such as ``"5ms"``: a group is
    gathered for so long first; ``"off"``: records are confirmed when written, and the system syncs them when it
    chooses."""
    segment_bytes: Annotated[int, size(100_000, 1 << 32)] = Field(default=64 * MIB, alias="segment")
    """Files of about this size; a file is deleted when no record in it is needed."""

    @property
    def sync(self) -> bool:
        """Whether confirms wait for the disk."""
        return self.fsync != "off"

    @property
    def gather_s(self) -> float:
        """Time for which writes are gathered before they are synced."""
        return self.fsync if isinstance(self.fsync, float) else 0.0


class HistoryTable(Table):
    """``[history]``: verdicts and ends of connections outlive the process. Values that are None follow from others
    (:class:`HistorySettings`)."""

    enabled: bool | None = None
    """``false`` turns it off and leaves the rest as it is.

    Default: true, if there is a journal or this table."""
    folder: Path_ | None = Field(default=None, alias="path")
    """A folder; each broker needs its own.

    Default: the journal's folder, else ``history``."""
    keep_s: Annotated[float, duration(3600.0, 3650 * DAY_S)] = Field(default=30 * DAY_S, alias="keep")
    """How long entries are kept."""
    disk_bytes: Annotated[int, size(1_000_000, 1 << 40)] = Field(default=64_000_000, alias="disk")
    """Limit of all its files, half of it for verdicts and half for ends; beyond it the oldest files are deleted."""


class TopicTable(Table):
    """``[[topic]]``: topics whose latest record per key is kept; with ``keep``, all of their records; with ``pool``, in
    memory of their own."""

    filter: Filter
    """The topics; the broker keeps their latest record per key (unless the table has nothing else but ``pool`` or
    ``priority``)."""
    key: Key = Field(default_factory=lambda: compile_key("topic"))
    """A JSON pointer such as ``"/tailnum"``, ``"property:NAME"``, or ``"topic"``."""
    keep: Keep_ | None = None
    """How long (``"7d"``) or how much (``"10GB"``) of the records the journal keeps, or whichever comes first (``["7d",
    "10GB"]``); left out: the topic is not recorded."""
    tombstones: bool = True
    """A record without payload, or with the user property ``delete``, removes its key (docs/STATE.md#deletes)."""
    expire_s: Annotated[float | None, duration(1.0, 3650 * DAY_S)] = Field(default=None, alias="expire")
    """A key that was not updated for so long is deleted."""
    order_by: list[Order] = Field(default_factory=list)
    """Orders that are kept from the start, such as ``["/delay DESC"]``: the first page of all of the topic in one of
    them is as fast as any (docs/QUERIES.md#queries)."""
    conflate_s: Annotated[float | None, duration(0.0, DAY_S)] = Field(default=None, alias="conflate")
    """Subscribers who say nothing else get the latest record per key, this often; ``"0s"``: whenever their sockets have
    room (docs/STATE.md#conflated-topics)."""
    pool: TopicPool_ | None = None
    """Memory of their own for what waits for consumers: ``"200MB"``, or ``{ memory = "200MB", disk = "1GB" }``
    (docs/CONFIG.md#pools-of-topics)."""
    priority: Annotated[int | None, count(0, 9)] = None
    """0 to 9: what comes first for a client that is behind, and where a turn has much to do. Such a client is sent
    these subscriptions before the others, and of their backlogs ``1 + 4 x priority`` turns for one of all the
    subscriptions without; so alerts overtake ticks, however many there are, and the ticks still come. That is so for
    clients that acknowledge, too, whatever their window. Of queues those of the highest priority are handed out first
    in about seven of eight rounds. The first table whose filter covers all of a subscription decides, so ``priority =
    0`` before it makes an exception. It counts for subscriptions and queues that are entirely under the filter
    (``$queue/orders/#``), between their logs: records of one subscription stay in their order. What a kernel has
    already goes first, and at most 64 KB that were written for the client.

    Default: ``0``."""

    @property
    def keyed(self) -> bool:
        """Whether the latest record per key is kept: not by a table that says nothing but a pool or a priority."""
        said = self.model_fields_set - {"filter"}
        return not said or not said <= {"pool", "priority"}

    @property
    def terms(self) -> StateTerms:
        return StateTerms(self.filter, self.key.text, self.tombstones, self.expire_s or inf, tuple(self.order_by),
                          inf if self.conflate_s is None else self.conflate_s)


class ViewTable(Table):
    """``[views.NAME]``: a query over recorded topics. ``headway pipeline views`` keeps publishing its result."""

    sql: Text
    """Spark's SQL.

    The broker does not parse it."""
    topic: Topic
    """The topic of the result; no ``[[topic]]`` is needed.

    It is keyed by the column ``key`` and recorded, as if there were a ``[[topic]]``."""
    key: Column
    """The column of the result that the topic is keyed by."""
    every_s: Annotated[float, duration(0.0, DAY_S)] = Field(default=1.0, alias="every")
    """How often changes are published; ``"0s"``: as fast as possible."""
    mode: Annotated[Literal["update", "append", "complete"], one_of("update", "append", "complete")] = "update"
    """Groups that have changed; ``"append"``: rows that are final; ``"complete"``: all rows, each time."""
    keep: Keep_ = Keep(7 * DAY_S, None)
    """As for a ``[[topic]]``."""
    partitions: Annotated[int, count(1, 10_000)] = 1
    """Partitions of the view's state; they cannot be changed later."""


class SourceTable(Table):
    """``[tables.NAME]``: how the SQL of views sees a recorded topic."""

    topic: Filter | None = None
    """A recorded topic, or a filter within one.

    Default: the recorded topic of that name.

    None: the recorded topic whose name gives this table's (``core.message.table_name``)."""
    ddl: Text | None = Field(default=None, alias="schema")
    """The fields of the payload: ``"carrier STRING, delay INT"``.

    Default: that of the latest records when the view starts."""
    watermark_s: Annotated[float | None, duration(0.0, 365 * DAY_S)] = Field(default=None, alias="watermark")
    """How late records may be; then windows can be closed."""
    time: Column = "timestamp"
    """The column that the watermark is of."""
    misfits: Annotated[Literal["fail", "skip"], one_of("fail", "skip")] = "fail"
    """For a payload that does not fit the schema: ``"fail"`` ends the view; ``"skip"`` leaves the record out and counts
    it."""
    deletes: Annotated[Literal["skip", "rows"], one_of("skip", "rows")] = "skip"
    """For a record that deletes its key: ``"skip"`` leaves it out and counts it; ``"rows"``: it is a row whose
    ``_deleted`` is true (docs/VIEWS.md#deletes)."""


class FileTables(Table):
    """A whole file except its policies, which ``core.policy`` reads."""

    server: ServerTable = ServerTable()
    listeners: dict[Name, ListenerTable] = Field(default_factory=dict)
    auth: AuthTable = AuthTable()
    permission: list[PermissionTable] = Field(default_factory=list)
    limit: list[LimitTable] = Field(default_factory=list)
    pool: PoolTable = Field(default_factory=PoolTable)
    flap: FlapTable = FlapTable()
    retained: RetainedTable = RetainedTable()
    telemetry: TelemetryTable = TelemetryTable(enabled=False)
    traces: TracesTable = TracesTable(enabled=False)
    journal: JournalTable = JournalTable(enabled=False)
    history: HistoryTable = HistoryTable()
    topic: list[TopicTable] = Field(default_factory=list)
    views: dict[Identifier, ViewTable] = Field(default_factory=dict)
    tables: dict[Identifier, SourceTable] = Field(default_factory=dict)


@dataclass(frozen=True)
class PoolSettings:
    """Settings of a ``core.log.Pool`` but for its shares, and the folder of its spill files."""

    name: str
    """The listener's name; empty for the global pool; ``topic FILTER`` for a topic's."""
    memory_bytes: int
    disk_bytes: int
    """0: nothing goes to disk."""
    disk_path: Path
    topic: str = ""
    """The filter of a topic's pool; empty: it is none."""
    biggest_client_first: bool = False


@dataclass(frozen=True)
class HistorySettings:
    """Settings of the history, with those that follow from the journal."""

    enabled: bool
    """As written; else if there is a table of its own, or a journal."""
    folder: Path
    """As written; else the journal's folder, else ``history``."""
    keep_s: float
    bytes_max: int


@dataclass(frozen=True)
class Settings:
    """A config that was read and is valid."""

    server: ServerTable
    listeners: dict[str, ListenerTable]
    """Listeners by name; never empty."""
    auth: AuthTable
    permissions: tuple[Permission, ...]
    """In the order of the file. If there is one, whatever none of them allows is denied."""
    limits: tuple[UserLimits, ...]
    """In the order of the file. The first that is for a user is its limit."""
    pools: dict[str, PoolSettings]
    """Pools by listener; ``""`` is what topics leave of the global one. Then pools of topics in the order of the file,
    by their names. The keys are those of ``core.routing.Registry.pools``."""
    shares: dict[str, Shares]
    """Shares of their pool that clients have, by listener; ``""``: clients of no listener, such as those over HTTP."""
    flap: FlapTable
    retained: RetainedTable
    telemetry: TelemetryTable
    """Not enabled where the file has no such table."""
    traces: TracesTable
    """Not enabled where the file has no such table."""
    journal: JournalTable
    """Not enabled where the file has no such table."""
    history: HistorySettings
    topics: tuple[TopicTable, ...]
    """Keyed topics: first those of views, then those of the file in its order."""
    views: dict[str, ViewTable]
    tables: dict[str, SourceTable]
    policies: tuple[Policy, ...]
    """Policies in the order of the file. The first one that covers a subscription governs it."""
    trials: tuple[Policy, ...]
    """Policies that judge beside those in force, and change nothing."""
    source: Path | None
    """The file, for a reload; None: the embedded default, or a text without a file."""
    policies_text: str
    """JSON of the ``[[policy]]`` and ``[[topic]]`` tables as they are written, with the topics of views."""
    text: str
    """The TOML text."""
    embedded: bool = False
    """Whether the broker is part of a program."""

    @property
    def keyed(self) -> list[TopicTable]:
        """Topics whose latest record per key is kept."""
        return [topic for topic in self.topics if topic.keyed]

    @property
    def priorities(self) -> dict[str, int]:
        return {topic.filter: topic.priority for topic in self.topics if topic.priority is not None}

    def shares_pool(self, listener: str) -> bool:
        """Returns whether a listener's ``pool`` table has nothing but shares of ``[pool]``."""
        return self.listeners[listener].pool is not None and listener not in self.pools

    @property
    def listener_names(self) -> list[str]:
        """The names that a policy's ``listeners`` may have: of the listeners, and that of clients of the admin API; in
        a program, that of its own subscriptions, too."""
        return [*self.listeners, HTTP_LISTENER, *([PROGRAM_LISTENER] if self.embedded else ())]

    @property
    def ports(self) -> list[str]:
        """The names of listeners that have a port of their own."""
        return [name for name in self.listeners if not (self.embedded and name == ASGI_LISTENER)]


# -- views -------------------------------------------------------------------------------------------------------------
#
# Views as the broker's config sees them: their topics are keyed and recorded. Also the SQL names of recorded topics.
#
# The broker needs no more of a view. Spark runs the query (``headway pipeline views``) and publishes its results like
# any publisher.


def key_of(view: ViewTable) -> KeyExtractor:
    """Returns the key of a view's topic: the column ``key``."""
    return compile_key("/" + view.key.replace("~", "~0").replace("/", "~1"))


def topics_of(views: Iterable[ViewTable], topics: Iterable[TopicTable]) -> tuple[TopicTable, ...]:
    """Returns all keyed topics. A record is recorded with the first one that covers it, so topics of views come first:
    a wildcard of the file that also covers them changes neither their key nor how long they are kept. What else a
    ``[[topic]]`` of the same filter says holds for them, too."""
    topics = tuple(topics)
    beside = {topic.filter: topic for topic in topics}
    of_views: dict[str, TopicTable] = {}
    for view in views:
        topic = beside.get(view.topic) or TopicTable(filter=view.topic)
        of_views[view.topic] = topic.model_copy(update={"key": key_of(view), "keep": view.keep})
    return (*of_views.values(), *(topic for topic in topics if topic.filter not in of_views))


def tables_of(settings: Settings) -> dict[str, SourceTable]:
    """Returns all tables that SQL can name, with their topics. A name that fits two recorded topics is not given."""
    defaults = _named(settings.topics)
    found = {name: SourceTable(topic=topics[0]) for name, topics in defaults.items() if len(topics) == 1}
    for name, table in settings.tables.items():
        topic = table.topic or defaults[name.lower()][0]
        found[name.lower()] = table.model_copy(update={"topic": topic})
    return found


def _named(topics: Iterable[TopicTable]) -> dict[str, list[str]]:
    """Returns recorded topics by their SQL name."""
    found: dict[str, list[str]] = {}
    for topic in topics:
        if topic.keep is not None and (name := table_name(topic.filter)):
            found.setdefault(name, []).append(topic.filter)
    return found


# -- errors -----------------------------------------------------------------------------------------------------------


def bad_views(settings: Settings, written: Iterable[TopicTable]) -> Iterator[str]:
    """Finds errors in views and tables; ``written`` are the ``[[topic]]`` tables of the file."""
    topics = {topic.filter: topic for topic in written if topic.keyed}
    taken: dict[str, str] = {}
    for name, view in settings.views.items():
        where, shown_topic = f"views.{name}", shown(view.topic)
        if not settings.journal.enabled:
            yield f"{where}: the result of a view is recorded in the journal, and there is none: add [journal]"
        if view.topic in taken:
            yield f"{where}.topic: {shown_topic} is the topic of views.{taken[view.topic]} already"
        taken.setdefault(view.topic, name)
        beside = topics.get(view.topic)
        if beside is not None and beside.key != key_of(view):
            yield (
                f"{where}.key: {shown(view.key)}, and the [[topic]] {shown_topic} says {shown(beside.key.text)}: leave "
                "that [[topic]] out, a view needs none"
            )
        elif beside is not None and beside.keep not in (None, view.keep):
            yield (
                f"{where}.keep: {view.keep}, and the [[topic]] {shown_topic} says {beside.keep}: leave that [[topic]] "
                "out, a view needs none"
            )
    yield from _bad_tables(settings)


def _bad_tables(settings: Settings) -> Iterator[str]:
    defaults = _named(settings.topics)
    recorded = [topic.filter for topic in settings.topics if topic.keep is not None]
    seen: set[str] = set()
    for name, table in settings.tables.items():
        where, lower = f"tables.{name}", name.lower()
        if lower in seen:
            yield f"{where}: there is a table of that name already; SQL does not tell capital letters from small ones"
        seen.add(lower)
        topics = defaults.get(lower, [])
        if table.topic is not None and not any(covers(filter, table.topic) for filter in recorded):
            yield f'{where}.topic: {shown(table.topic)} is not recorded: it takes a [[topic]] with keep = "7d", or so'
        elif table.topic is None and len(topics) > 1:
            yield f"{where}.topic: is missing: {' and '.join(topics)} would both be called {name}"
        elif table.topic is None and not topics:
            known = ", ".join(defaults) or "none"
            yield f"{where}.topic: is missing, for no recorded topic is called {name} by itself (known: {known})"
        if "time" in table.model_fields_set and table.watermark_s is None:
            yield f'{where}.time: is the column of the watermark, and there is none: add watermark = "10s", or so'
