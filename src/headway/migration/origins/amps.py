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
from headway.migration.draft import Draft, Keyed, ListenerDraft, Unreadable, rule, said, units
from headway.migration.formats import Node, read_xml
from headway.migration.hiding import hide
from headway.migration.origins.origin import Origin
from headway.server.protocols import PROTOCOLS

UNITS: Mapping[str, int] = {
    "": 1, "b": 1, "k": 1000, "kb": 1000, "m": 10**6, "mb": 10**6, "g": 10**9, "gb": 10**9, "t": 10**12, "tb": 10**12,
    "kib": 1024, "mib": 1024**2, "gib": 1024**3, "tib": 1024**4,
}  # fmt: skip
SECURE = ("tcps", "amps-replication-secure")
DEFAULT_MODULES = ("amps-default-authentication-module", "amps-default-entitlement-module")
"""They let in everybody, and allow everything, unless the file says what they are."""
CONFLATED = ("ConflatedTopic", "TopicReplica")
INTERVAL_MS = 5000
_DISCONNECT = {"action": "disconnect", "connection": True}


def read(roots: Sequence[Node], draft: Draft) -> None:
    own = {node.value("Name") for root in roots for node in root.find("Module")}
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
        for node in root.find("Authentication", "Entitlement"):
            default = len(node.all("Module")) == 1 and node.value("Module") in DEFAULT_MODULES
            if (not default or node.value("Module") in own) and not node.within("Admin"):
                draft.close(node)
        for topic in root.find("Topic", "TopicDefinition", "TopicMetaData"):
            if topic.within("SOW") or topic.name != "Topic":
                _topic(topic, draft)
        for topic in root.find(*CONFLATED):
            _conflated(topic, draft)
        for node in root.find("JournalDirectory"):
            draft.put_journal(node)
        draft.leftovers(root)
    pool = draft.tables["pool"]
    if pool or any(one.pool for one in draft.listeners):
        pool["connection"] = Keyed(True, "AMPS disconnects a client with all of its subscriptions")
        pool["biggest_client_first"] = Keyed(True, "AMPS chooses the client that uses the most")


def _limits(around: Node, pool: dict[str, Keyed], listeners: Sequence[str], draft: Draft) -> None:
    """Reads the limits of the instance, or of one transport."""
    draft.put_read(pool, "memory", _memory, *around.all("MessageMemoryLimit"))
    draft.put_read(pool, "disk", _size, *around.all("MessageDiskLimit"))
    for node in around.all("MessageDiskPath", "ClientOfflineDirectory"):
        if "$" in node.text or not node.text:
            draft.lost(node, why="the folder is not told by the file")
        else:
            draft.put_in(pool, "disk_path", node.text, node)
    draft.put_read(pool, "max_client_share", _share, *around.all("ClientMaxCapacity"))
    for node in around.all("ClientMessageAgeLimit"):
        with draft.reading(node):
            made = rule(_DISCONNECT, {"lag_age": units.same_time(node, "s")}, name="age limit")
            _rule(draft, listeners, node, made)
    _older(around, listeners, draft)


def _older(around: Node, listeners: Sequence[str], draft: Draft) -> None:
    """Reads the options of versions before resource pools."""
    for switch, limit, write in (
        ("ClientOffline", "ClientOfflineThreshold", _offline), ("SlowClientDisconnect", "ClientBufferThreshold", _cut),
    ):  # fmt: skip
        on, most = around.child(switch), around.child(limit)
        with draft.reading(on, most):
            wanted = on is None or units.true(on)
            if most is not None and wanted:
                _rule(draft, listeners, most, write(most))
            elif most is not None:
                draft.same(most, why=f"{switch} is off")
            if most is not None and wanted:
                draft.carried(on)
            else:
                draft.same(on)


def _offline(node: Node) -> dict[str, object]:
    return rule("offline", {"lag_records": f"> {units.not_negative(units.number(node), node)}"}, name="offline")


def _cut(node: Node) -> dict[str, object]:
    return rule(_DISCONNECT, {"lag_bytes": _size(node)}, name="buffer")


def _rule(draft: Draft, listeners: Sequence[str], node: Node, made: Mapping[str, object]) -> None:
    name = f"clients of {', '.join(listeners)}" if listeners else "clients"
    draft.policy(name, ("#",), "", listeners=listeners).add(made, said(node))
    draft.carried(node)


def _memory(node: Node) -> str:
    return _share(node) if node.text.endswith("%") else units.pool_memory(units.size(node, UNITS), node)


def _size(node: Node) -> str:
    return units.same_size(node, UNITS)


def _share(node: Node) -> str:
    text = node.text if node.text.endswith("%") else f"{node.text}%"
    try:
        if parse_share(text) > 0:
            return text
    except ConfigError:
        pass
    raise Unreadable(f"{node.shown[:40]!r} is not a share")


def _transport(transport: Node, draft: Draft) -> ListenerDraft | None:
    address, kind = transport.child("InetAddr"), transport.value("Type")
    if address is None or "replication" in kind or "unix" in kind:
        draft.lost_with_all(transport, "only transports over TCP for clients become listeners")
        return None
    host, _, port = address.text.rpartition(":")
    plain, tls = next(iter(PROTOCOLS)), kind in SECURE or transport.child("Certificate") is not None
    scheme = "ws" if transport.value("Protocol") == "websocket" else plain
    if tls:
        scheme += "s"
    name = transport.value("Name") or f"transport-{port}"
    listener = draft.listener(name, scheme, host, units.port_of(port), address)
    if listener is None:
        for node in transport.walk():
            if node.text:
                draft.lost(node, why="its listener has no counterpart")
        return None
    draft.carried(*transport.all("Name", "Type", "Protocol"))
    certificate, key, ca, wanted = (
        transport.child(name) for name in ("Certificate", "PrivateKey", "CAFile", "VerifyClient")
    )
    verify = "none"
    if wanted is not None:
        with draft.reading(wanted):
            verify = "required"  # also if the word is not understood: then nobody gets in
            verify = units.required(wanted)
    draft.put_tls(listener, verify, wanted, certificate=certificate, key=key, ca=ca)
    for node in transport.all("PerMessageDeflate"):
        with draft.reading(node):
            if scheme.startswith("ws"):
                draft.put_in(listener.keys, "compression", units.true(node), node)
            else:
                draft.lost(node, why="compression is for WebSockets")
    return listener


def _admin(root: Node, draft: Draft) -> None:
    for admin in root.find("Admin"):
        for node in admin.all("InetAddr"):
            draft.put_admin(node)


def _filter(node: Node) -> str:
    """Returns the filter of a topic's name. Raises Unreadable."""
    if set(node.text) & set("*^$|()[]\\"):
        raise Unreadable(f"{node.shown[:60]!r} is a regular expression; a filter has + and #")
    if node.shown != node.text:
        raise Unreadable(units.SECRET)
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
                raise Unreadable(hide(str(error))) from None
        table = draft.topic(filter)
        for key in keys:
            draft.put_in(table, "key", key.text, key)
        draft.carried(name)
        if expiration is not None:
            with draft.reading(expiration):
                if expiration.text.lower() in ("enabled", "disabled"):
                    draft.same(expiration, why="a publisher's expiry of a record counts; no time is set for all")
                else:
                    time = max(1000, units.not_negative(units.milliseconds(expiration, "s"), expiration))
                    draft.put_in(table, "expire", units.toml_duration(time), expiration)


def _conflated(topic: Node, draft: Draft) -> None:
    name, underlying, interval = topic.child("Name", "Topic"), topic.child("UnderlyingTopic"), topic.child("Interval")
    if underlying is None:
        return
    with draft.reading(underlying, interval, name):
        table = draft.topic(_filter(underlying))
        time = units.toml_duration(units.milliseconds(interval, "s", INTERVAL_MS))
        was = f"was {name.shown}" if name is not None else ""
        if table.get("conflate", Keyed(time, "")).value != time:
            raise Unreadable(f"{underlying.shown[:60]} is conflated by another; a subscriber asks: conflate = {time}")
        draft.put_in(table, "conflate", time, interval or underlying, was)
        draft.carried(underlying, interval, name)


AMPS = Origin("amps", "AMPS", (), read_xml, read, xml=True,
              signs=("AMPSConfig", "SOW", "Transports", "Transport"))  # fmt: skip
