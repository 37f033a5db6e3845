"""60East AMPS: its configuration in XML, as its public documentation describes it.

Rules:
- A limit outside of any ``Transport`` is for the instance, one within for that transport alone.
- AMPS's own protocol is not spoken here. A transport becomes a listener of the first protocol of the registry (in a
  WebSocket, if it is one), because limits belong to it; its clients use another library.
- A conflated topic is a copy under another name there. Here it is the topic itself, conflated for subscribers who ask
  for nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headway.core.base import ConfigError, parse_share
from headway.core.message import BadKey, BadTopic, compile_key, validate_filter
from headway.migration.draft import (
    Draft,
    Keyed,
    ListenerDraft,
    Unreadable,
    milliseconds,
    number,
    port_of,
    rule,
    said,
    size,
    toml_duration,
    toml_size,
    true,
)
from headway.migration.formats import Node, read_xml
from headway.migration.origins.origin import Origin
from headway.server.protocols import PROTOCOLS

UNITS: Mapping[str, int] = {
    "": 1, "b": 1, "k": 1000, "kb": 1000, "m": 10**6, "mb": 10**6, "g": 10**9, "gb": 10**9, "t": 10**12, "tb": 10**12,
    "kib": 1024, "mib": 1024**2, "gib": 1024**3, "tib": 1024**4,
}  # fmt: skip
SECURE = ("tcps", "amps-replication-secure")
CONFLATED = ("ConflatedTopic", "TopicReplica")
INTERVAL_MS = 5000
JOURNAL = "/var/lib/headway"


def read(roots: Sequence[Node], draft: Draft) -> None:
    for root in roots:
        instance = root.child("AMPSConfig") or root
        name = instance.child("Name")
        if name is not None and instance.name and name.text.isprintable():
            draft.put("server", "name", name.text[:100], name)
        for transport in root.find("Transport"):
            listener = _transport(transport, draft)
            if listener is not None:
                _limits(transport, listener.pool, (listener.name,), draft)
        _limits(instance, draft.tables["pool"], (), draft)
        if instance is not root:
            _limits(root, draft.tables["pool"], (), draft)
        _admin(root, draft)
        if root.find("Authentication"):
            draft.open = False
        for topic in root.find("Topic", "TopicDefinition", "TopicMetaData"):
            if topic.within("SOW") or topic.name != "Topic":
                _topic(topic, draft)
        for topic in root.find(*CONFLATED):
            _conflated(topic, draft)
        for node in root.find("JournalDirectory"):
            draft.put("journal", "path", JOURNAL, node, "in a folder of its own")
        draft.leftovers(root)


def _limits(around: Node, pool: dict[str, Keyed], listeners: Sequence[str], draft: Draft) -> None:
    """Reads the limits of the instance, or of one transport."""
    for name, key in (("MessageMemoryLimit", "memory"), ("MessageDiskLimit", "disk")):
        for node in around.all(name):
            with draft.reading(node):
                if key == "memory" and node.text.endswith("%"):
                    draft.put_in(pool, key, _share(node), node)
                    continue
                bytes_ = size(node, UNITS)
                if key == "memory" and bytes_ < 1_000_000:
                    raise Unreadable(f"{node.text}: a pool has 1 MB at least")
                draft.put_in(pool, key, toml_size(bytes_), node)
    for node in around.all("MessageDiskPath", "ClientOfflineDirectory"):
        if "$" in node.text or not node.text:
            draft.lost(node, why="the folder is not told by the file")
        else:
            draft.put_in(pool, "disk_path", node.text, node)
    for node in around.all("ClientMaxCapacity"):
        with draft.reading(node):
            draft.put_in(pool, "max_client_share", _share(node), node)
    for node in around.all("ClientMessageAgeLimit"):
        with draft.reading(node):
            _rule(draft, listeners, node, rule("disconnect", {"lag_age": toml_duration(milliseconds(node, "s"))},
                                               name="age limit"))  # fmt: skip
    _older(around, listeners, draft)


def _older(around: Node, listeners: Sequence[str], draft: Draft) -> None:
    """Reads the options of versions before resource pools."""
    for switch, limit, write in (
        ("ClientOffline", "ClientOfflineThreshold", _offline), ("SlowClientDisconnect", "ClientBufferThreshold", _cut),
    ):  # fmt: skip
        on, most = around.child(switch), around.child(limit)
        nodes = [node for node in (on, most) if node is not None]
        with draft.reading(*nodes):
            wanted = on is None or true(on)
            if most is not None and wanted:
                _rule(draft, listeners, most, write(most))
            elif most is not None:
                draft.same(most, why=f"{switch} is off")
            if on is not None and most is not None and wanted:
                draft.carried(on)
            elif on is not None:
                draft.same(on)


def _offline(node: Node) -> dict[str, object]:
    return rule("offline", {"lag_records": f"> {number(node)}"}, name="offline")


def _cut(node: Node) -> dict[str, object]:
    return rule("disconnect", {"lag_bytes": toml_size(size(node, UNITS))}, name="buffer")


def _rule(draft: Draft, listeners: Sequence[str], node: Node, made: Mapping[str, object]) -> None:
    name = f"clients of {', '.join(listeners)}" if listeners else "clients"
    draft.policy(name, ("#",), "", listeners=listeners).add(made, said(node))
    draft.carried(node)


def _share(node: Node) -> str:
    text = node.text if node.text.endswith("%") else f"{node.text}%"
    try:
        if parse_share(text) > 0:
            return text
    except ConfigError:
        pass
    raise Unreadable(f"{node.text[:40]!r} is not a share")


def _transport(transport: Node, draft: Draft) -> ListenerDraft | None:
    address, kind = transport.child("InetAddr"), transport.value("Type")
    if address is None or "replication" in kind or "unix" in kind:
        for node in transport.walk():
            if node.text or not node.children:
                draft.lost(node, why="only transports over TCP for clients become listeners")
        return None
    host, _, port = address.text.rpartition(":")
    plain, tls = next(iter(PROTOCOLS)), kind in SECURE or transport.child("Certificate") is not None
    scheme = "ws" if transport.value("Protocol") == "websocket" else plain
    if tls:
        scheme += "s"
    name = transport.value("Name") or f"transport-{port}"
    listener = draft.listener(name, scheme, host, port_of(port), address)
    if listener is None:
        for node in transport.walk():
            if node.text:
                draft.lost(node, why="its listener has no counterpart")
        return None
    draft.carried(*transport.all("Name", "Type", "Protocol"))
    for node in transport.all("Certificate", "PrivateKey", "CAFile"):
        key = {"Certificate": "certificate", "PrivateKey": "key", "CAFile": "ca"}[node.name]
        draft.put_in(listener.tls, key, node.text, node)
    for node in transport.all("VerifyClient"):
        with draft.reading(node):
            draft.put_in(listener.tls, "verify", "required" if true(node) else "none", node)
    for node in transport.all("PerMessageDeflate"):
        with draft.reading(node):
            if scheme.startswith("ws"):
                draft.put_in(listener.keys, "compression", true(node), node)
            else:
                draft.lost(node, why="compression is for WebSockets")
    return listener


def _admin(root: Node, draft: Draft) -> None:
    for admin in root.find("Admin"):
        for node in admin.all("InetAddr"):
            port = node.text.rpartition(":")[2]
            if port.isdecimal() and 0 < int(port[:6]) < 65_536:
                draft.put("server", "admin", f"http://127.0.0.1:{int(port)}", node, "on loopback")
            else:
                draft.lost(node, why="it has no port")


def _filter(node: Node) -> str:
    """Returns the filter of a topic's name. Raises Unreadable."""
    if set(node.text) & set("*^$|()[]\\"):
        raise Unreadable(f"{node.text[:60]!r} is a regular expression; a filter has + and #")
    try:
        return validate_filter(node.text)
    except BadTopic as error:
        raise Unreadable(str(error)) from None


def _topic(topic: Node, draft: Draft) -> None:
    name, keys, expiration = topic.child("Name", "Topic"), topic.all("Key"), topic.child("Expiration")
    if name is None:
        return
    with draft.reading(name, *keys):
        filter = _filter(name)
        if len(keys) > 1:
            raise Unreadable("it has several keys, and a topic has one here")
        for key in keys:
            try:
                compile_key(key.text)
            except BadKey as error:
                raise Unreadable(str(error)) from None
        table = draft.topic(filter)
        for key in keys:
            draft.put_in(table, "key", key.text, key)
        draft.carried(name)
        if expiration is not None:
            with draft.reading(expiration):
                if expiration.text.lower() in ("enabled", "disabled"):
                    draft.same(expiration, why="a publisher's expiry of a record counts; no time is set for all")
                else:
                    time = max(1000, milliseconds(expiration, "s"))
                    draft.put_in(table, "expire", toml_duration(time), expiration)


def _conflated(topic: Node, draft: Draft) -> None:
    name, underlying, interval = topic.child("Name", "Topic"), topic.child("UnderlyingTopic"), topic.child("Interval")
    if underlying is None:
        return
    nodes = [node for node in (underlying, interval, name) if node is not None]
    with draft.reading(*nodes):
        table = draft.topic(_filter(underlying))
        time = toml_duration(milliseconds(interval, "s") if interval is not None else INTERVAL_MS)
        was = f"was {name.text}" if name is not None else ""
        if table.get("conflate", Keyed(time, "")).value != time:
            raise Unreadable(f"{underlying.text} is conflated by another; a subscriber asks: conflate = {time}")
        draft.put_in(table, "conflate", time, interval or underlying, was)
        draft.carried(*nodes)


AMPS = Origin("amps", "AMPS", (), read_xml, read, xml=True,
              signs=("AMPSConfig", "SOW", "Transports", "Admin"))  # fmt: skip
