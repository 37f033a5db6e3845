"""ActiveMQ's broker itself: its name, transports, limits of the system, and store."""

from __future__ import annotations

import re

from headway.migration.draft import (
    Draft,
    ListenerDraft,
    Unreadable,
    milliseconds,
    number,
    size,
    toml_duration,
    toml_size,
    true,
)
from headway.migration.formats import Kind, Node

PORTS = ("tcp", "nio", "ssl", "vm")
"""Transports that carry ActiveMQ's own protocol."""
JOURNAL = "/var/lib/headway"
_URI = re.compile(r"([a-z0-9+.]+)://(\[[^\]]*\]|[^:/?#]*)(?::([0-9]{1,5}))?[^?]*(?:\?(.*))?", re.DOTALL)


def read_broker(broker: Node, draft: Draft) -> None:
    name, persistent = broker.child("brokerName"), broker.child("persistent")
    if name is not None and "${" not in name.text and name.text.strip().isprintable() and name.text.strip():
        draft.put("server", "name", name.text.strip()[:100], name)
    if persistent is not None:
        with draft.reading(persistent):
            if true(persistent):
                draft.put("journal", "path", JOURNAL, persistent)
            else:
                draft.same(persistent, why="there is no [journal]")


def read_usage(root: Node, draft: Draft) -> None:
    for usage, key in (("memoryUsage", "memory"), ("tempUsage", "disk")):
        for node in root.find(usage):
            limit = node.child("limit")
            if limit is None:
                continue
            with draft.reading(limit):
                if key == "memory" and size(limit) < 1_000_000:
                    raise Unreadable(f"{limit.text}: a pool has 1 MB at least")
                draft.put("pool", key, toml_size(size(limit)), limit)


def read_store(root: Node, draft: Draft) -> None:
    for node in root.find("memoryPersistenceAdapter"):
        draft.same(node)
    for node in root.find("kahaDB", "amqPersistenceAdapter", "levelDB", "mKahaDB"):
        folder = node.child("directory")
        if folder is not None:
            draft.put("journal", "path", JOURNAL, folder, "in a folder of its own")
        segment, strategy, interval, syncs = (
            node.child(name)
            for name in (
                "journalMaxFileLength", "journalDiskSyncStrategy", "journalDiskSyncInterval", "enableJournalDiskSyncs",
            )
        )  # fmt: skip
        if folder is None or node.name != "kahaDB":
            continue
        if segment is not None:
            with draft.reading(segment):
                bytes_ = size(segment)
                if not 100_000 <= bytes_ <= 1 << 32:
                    raise Unreadable(f"{segment.text}: from 100 kB to 4 GiB")
                draft.put("journal", "segment", toml_size(bytes_), segment)
        with draft.reading(*(one for one in (strategy, interval, syncs) if one is not None)):
            _syncs(strategy, interval, syncs, draft)


def _syncs(strategy: Node | None, interval: Node | None, syncs: Node | None, draft: Draft) -> None:
    word = strategy.text.strip().lower() if strategy is not None else ""
    said_by = strategy or syncs
    if said_by is None:
        return
    if word == "periodic":
        time = min(1000, milliseconds(interval)) if interval is not None else 1000
        draft.put("journal", "fsync", toml_duration(max(1, time)), said_by)
    elif word == "never" or (syncs is not None and not word and not true(syncs)):
        draft.put("journal", "fsync", "off", said_by)
    else:
        draft.put("journal", "fsync", "always", said_by)
    draft.carried(*(one for one in (strategy, interval, syncs) if one is not None))


def read_transport(connector: Node, draft: Draft) -> None:
    uri, name = connector.child("uri"), connector.child("name")
    if uri is None:
        return
    match = _URI.fullmatch(uri.text.strip())
    listener = None
    if match is None or match[3] is None or "${" in uri.text:
        draft.lost(uri, why="it has no address with a port")
    else:
        scheme = _scheme(match[1])
        title = name.text.strip() if name is not None and name.text.strip() else scheme
        listener = draft.listener(title, scheme, match[2] or "", int(match[3]), uri)
        if listener is not None:
            _query(match[4] or "", uri, listener, draft)
    if name is not None and listener is not None:
        draft.carried(name)
    elif name is not None:
        draft.lost(name, why="as its uri")


def _scheme(transport: str) -> str:
    """Returns the scheme of a listener for a transport such as ``mqtt+nio+ssl``."""
    words = transport.split("+")
    base = "openwire" if words[0] in PORTS else words[0]
    return f"{base}s" if "ssl" in words else base


def _query(query: str, uri: Node, listener: ListenerDraft, draft: Draft) -> None:
    for part in re.split(r"&amp;|&", query):
        key, _, text = part.partition("=")
        if not key:
            continue
        node = Node(key.strip(), uri.where, text.strip(), uri, Kind.ATTRIBUTE)
        with draft.reading(node):
            if key == "maximumConnections":
                if not 1 <= number(node) <= 1_000_000:
                    raise Unreadable(f"{text}: from 1 to 1,000,000 connections")
                draft.put_in(listener.keys, "connections_max", number(node), node)
            elif key == "wireFormat.maxFrameSize":
                if not 1000 <= number(node) <= 268_435_460:
                    raise Unreadable(f"{text}: from 1 kB to 256 MiB")
                draft.put_in(listener.keys, "packet_max", toml_size(number(node)), node)
            elif key in ("needClientAuth", "transport.needClientAuth", "wantClientAuth", "transport.wantClientAuth"):
                if true(node):
                    word = "required" if "need" in key else "optional"
                    draft.put_in(listener.tls, "verify", word, node)
                else:
                    draft.same(node, why="no certificate of a client is asked for")
