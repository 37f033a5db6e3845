"""ActiveMQ's broker itself: its name, transports, limits of the system, and store."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import unquote

from headway.migration.draft import Draft, ListenerDraft, SoAnyway, Unreadable, said, units
from headway.migration.formats import Kind, Node
from headway.server.protocols import SCHEMES

PORTS = ("tcp", "nio", "ssl", "vm")
"""Transports that carry ActiveMQ's own protocol."""
HARMLESS = (
    "cancelDuplicatesBrokerPlugin", "camelRoutesBrokerPlugin", "connectionDotFilePlugin", "destinationDotFilePlugin",
    "destinationPathSeparatorPlugin", "destinationsPlugin", "discardingDLQBrokerPlugin", "forcePersistencyModeBroker",
    "forcePersistencyModeBrokerPlugin", "loggingBrokerPlugin", "multicastTraceBrokerPlugin", "redeliveryPlugin",
    "runtimeConfigurationPlugin", "statisticsBrokerPlugin", "timeStampingBrokerPlugin", "traceBrokerPathPlugin",
    "udpTraceBrokerPlugin", "virtualSelectorCacheBrokerPlugin",
)  # fmt: skip
"""Plug-ins that keep nobody out."""
_SIMPLE = "simpleAuthenticationPlugin"
"""The plug-in that says itself whether anybody may come in beside the users in it."""
_STORES = ("kahaDB", "amqPersistenceAdapter", "levelDB", "mKahaDB", "replicatedLevelDB")
_DATABASES = ("jdbcPersistenceAdapter", "journaledJDBC", "journalPersistenceAdapterFactory")
_AUTO = {"default", "amqp", "stomp", "mqtt"}
"""Protocols of ``auto``, as ``auto.protocols`` names them."""
_URI = re.compile(r"([a-z0-9+.]+)://(\[[^\]]*\]|[^:/?#]*)(?::([0-9]{1,5}))?[^?]*(?:\?(.*))?", re.DOTALL)


def read_broker(broker: Node, draft: Draft) -> None:
    name, persistent = broker.child("brokerName"), broker.child("persistent")
    if name is not None and "${" not in name.text and name.text.strip().isprintable() and name.text.strip():
        draft.put("server", "name", name.text.strip()[:100], name)
    if persistent is not None:
        with draft.reading(persistent):
            if not units.true(persistent):
                raise SoAnyway("there is no [journal]")
            draft.put_journal(persistent, "")


def read_plugins(root: Node, draft: Draft) -> None:
    """Closes the import if a plug-in may restrict access: every plug-in does that is not known to be harmless."""
    for node in root.walk():
        if node.name == "plugins" and node.text:
            draft.close(node)  # an attribute: beans that stand anywhere
        within = node.parent is not None and node.parent.name == "plugins"
        word = "" if node.within(_SIMPLE) else node.name.lower()
        if "authentication" in word or "authorization" in word or (within and node.name not in HARMLESS):
            anybody = node.child("anonymousAccessAllowed") if node.name == _SIMPLE else None
            if anybody is None or anybody.text.strip() != "true":
                draft.close(node)


def read_usage(root: Node, draft: Draft) -> None:
    pool = draft.tables["pool"]
    draft.put_read(pool, "memory", _memory, *(node.child("limit") for node in root.find("memoryUsage")))
    draft.put_read(pool, "disk", units.same_size, *(node.child("limit") for node in root.find("tempUsage")))


def _memory(node: Node) -> str:
    return units.pool_memory(units.size(node), node)


def _segment(node: Node) -> str:
    return units.toml_size(units.within(units.size(node), 100_000, 1 << 32, node, "100 kB to 4 GiB"))


def read_store(root: Node, draft: Draft) -> None:
    draft.same(*root.find("memoryPersistenceAdapter"))
    if _keeps_nothing(root):
        for store in root.find(*_STORES, *_DATABASES):
            draft.same(*store.walk(), why="the broker is not persistent")
        return
    for node in root.find(*_DATABASES):
        source = node.child("dataSource", "dataDirectory")
        draft.put_journal(source or node, "instead of its database")
    for node in root.find(*_STORES):
        folder = node.child("directory")
        if folder is not None:
            draft.put_journal(folder)
        segment, strategy, interval, syncs = (
            node.child(name)
            for name in (
                "journalMaxFileLength", "journalDiskSyncStrategy", "journalDiskSyncInterval", "enableJournalDiskSyncs",
            )
        )  # fmt: skip
        if folder is None or node.name != "kahaDB":
            continue
        draft.put_read(draft.tables["journal"], "segment", _segment, segment)
        with draft.reading(strategy, interval, syncs):
            _syncs(strategy, interval, syncs, draft)


def _keeps_nothing(root: Node) -> bool:
    """Tells whether no broker of a file keeps its messages."""
    brokers = [broker.value("persistent").lower() for broker in root.find("broker")]
    return bool(brokers) and all(text == "false" for text in brokers)


def _syncs(strategy: Node | None, interval: Node | None, syncs: Node | None, draft: Draft) -> None:
    word = strategy.text.strip().lower() if strategy is not None else ""
    said_by = strategy or syncs
    if said_by is None:
        return
    if word == "periodic":
        time = min(1000, units.milliseconds(interval, default_ms=1000))
        draft.put("journal", "fsync", units.toml_duration(max(1, time)), said_by)
    elif word == "never" or (syncs is not None and not word and not units.true(syncs)):
        draft.put("journal", "fsync", "off", said_by)
    else:
        draft.put("journal", "fsync", "always", said_by)
    draft.carried(strategy, interval, syncs)


class WriteLimit(NamedTuple):
    """The time that a write to clients of a listener may take."""

    listener: str
    time_ms: int
    source: str


def read_transport(connector: Node, draft: Draft) -> list[WriteLimit]:
    """Makes a listener of a connector. Returns the limits of its writes, which are rules of policies."""
    uri, name = connector.child("uri"), connector.child("name")
    writes: list[WriteLimit] = []
    if uri is None:
        return writes
    match = _URI.fullmatch(uri.text.strip())
    listener = None
    if match is None or match[3] is None or "${" in uri.text:
        draft.lost(uri, why="it has no address with a port")
    else:
        query = [
            (key.strip(), text.strip())
            for key, _, text in (part.partition("=") for part in re.split(r"&amp;|&", match[4] or "")) if key
        ]  # fmt: skip
        scheme = _scheme(match[1])
        if scheme.startswith("auto"):
            scheme = _only(scheme, dict(query).get("auto.protocols", ""))
        title = name.text.strip() if name is not None and name.text.strip() else scheme
        listener = draft.listener(title, scheme, match[2] or "", int(match[3]), uri)
        if listener is not None:
            writes = _query(query, uri, listener, draft)
    if listener is not None:
        draft.carried(name)
    else:
        draft.lost(name, why="as its uri")
    return writes


def _scheme(transport: str) -> str:
    """Returns the scheme of a listener for a transport such as ``mqtt+nio+ssl``."""
    words = transport.split("+")
    base = "openwire" if words[0] in PORTS else words[0]
    return f"{base}s" if "ssl" in words else base


def _only(scheme: str, protocols: str) -> str:
    """Returns the scheme of a listener that speaks just those protocols of ``auto`` that are enabled; if there is none,
    words that are no scheme."""
    enabled = _AUTO & {word.strip() for word in unquote(protocols).split(",")} if protocols else _AUTO
    if enabled == _AUTO:
        return scheme
    if len(enabled) != 1:
        return f"{scheme} for {', '.join(sorted(enabled)) or 'no protocol'} only"
    (only,) = enabled
    return scheme.replace("auto", "openwire" if only == "default" else only)


def _query(query: Sequence[tuple[str, str]], uri: Node, listener: ListenerDraft, draft: Draft) -> list[WriteLimit]:
    writes: list[WriteLimit] = []
    for key, text in query:
        node = Node(key, uri.where, text, uri, Kind.ATTRIBUTE)
        with draft.reading(node):
            if key == "maximumConnections":
                connections = units.within(units.number(node), 1, 1_000_000, node, "1 to 1,000,000 connections")
                draft.put_in(listener.keys, "connections_max", connections, node)
            elif key == "wireFormat.maxFrameSize":
                packet_bytes = units.within(units.number(node), 1000, 268_435_460, node, "1 kB to 256 MiB")
                draft.put_in(listener.keys, "packet_max", units.toml_size(packet_bytes), node)
            elif key == "wireFormat.maxInactivityDuration":
                if not listener.scheme.startswith("openwire"):
                    raise Unreadable(f"it is for clients of OpenWire, and the port is for {listener.scheme}")
                time_ms = units.milliseconds(node)
                if not time_ms:
                    raise Unreadable("a client that asks to be watched is, for 30 s of silence at most")
                time_ms = units.within(time_ms, 1000, 65_535_000, node, "1 s to 65,535 s")
                draft.put_in(listener.keys, "keep_alive_max", units.toml_duration(time_ms), node)
            elif key in ("soWriteTimeout", "transport.soWriteTimeout"):
                time_ms = units.set_or(units.milliseconds(node), "a write may take any time")
                writes.append(WriteLimit(listener.name, time_ms, said(node)))
                draft.carried(node)
            elif key == "auto.protocols":
                draft.carried(node)
            elif key in ("needClientAuth", "transport.needClientAuth", "wantClientAuth", "transport.wantClientAuth"):
                if not units.true(node):
                    raise SoAnyway("no certificate of a client is asked for")
                if not SCHEMES[listener.scheme].tls:
                    draft.close(node)
                    raise Unreadable("the transport is without TLS")
                draft.put_in(listener.tls, "verify", "required" if "need" in key else "optional", node)
    return writes
