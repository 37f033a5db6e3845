"""Eclipse Mosquitto: ``mosquitto.conf``.

Rules:
- What follows a ``listener`` belongs to it, up to the next one.
- Limits of what may wait for a client are written with their defaults where the file has listeners or limits, so that
  it is served as there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from headway.migration.draft import Draft, ListenerDraft, SoAnyway, Unreadable, discard, rule, said, units
from headway.migration.formats import Node, read_lines
from headway.migration.origins.origin import Origin
from headway.server.protocols import SCHEMES

QUEUED = 1000
DAY_MS = 86_400_000
_PACKET_MAX = 268_435_460
_EXPIRY_DAYS = {"d": 1, "w": 7, "m": 30, "y": 365}


def read(roots: Sequence[Node], draft: Draft) -> None:
    nodes = [node for root in roots for node in root.children]
    allowed = [node for node in nodes if node.name == "allow_anonymous"]
    draft.open = False
    _users(nodes, draft)
    _listeners(nodes, draft)
    for node in allowed:
        if not node.said:
            with draft.reading(node):
                draft.open = draft.open or units.true(node)
                draft.carried(node)
    _sessions(nodes, draft)
    _queued(nodes, draft)
    for root in roots:
        draft.leftovers(root)


def _users(nodes: Sequence[Node], draft: Draft) -> None:
    for node in nodes:
        if node.name != "password_file":
            continue
        if _readable(node.text):
            draft.put("auth", "password_file", node.text, node)
        else:
            draft.lost(node, why="the file cannot be read here; headway passwd makes lines for [auth.users]")


def _readable(path: str) -> bool:
    try:
        with Path(path).open("rb"):
            return True
    except OSError:
        return False


def _listeners(nodes: Sequence[Node], draft: Draft) -> None:
    """Makes the listeners, each with the settings behind it."""
    host = next((node for node in nodes if node.name == "bind_address"), None)
    blocks: list[tuple[Node, list[Node]]] = []
    before: list[Node] = []
    for node in nodes:
        if node.name == "listener":
            blocks.append((node, []))
        elif blocks:
            blocks[-1][1].append(node)
        else:
            before.append(node)
    port = next((node for node in before if node.name == "port"), None)
    if port is not None:
        blocks.insert(0, (port, before))
    for opening, settings in blocks:
        words = opening.text.split()
        given = next((node for node in settings if node.name == "bind_address"), host if opening is port else None)
        address = words[1] if len(words) > 1 else given.text if given is not None else ""
        named = {node.name: node for node in settings}
        scheme = _scheme(named)
        taken = units.port_of(words[0] if words else "")
        listener = draft.listener(f"{scheme}-{taken}", scheme, address, taken, opening)
        if listener is not None:
            draft.carried(given)
            _listener(named, listener, draft)


def _scheme(named: dict[str, Node]) -> str:
    """Returns the scheme of a listener with these settings."""
    web = "protocol" in named and named["protocol"].text.strip() == "websockets"
    tls = "certfile" in named
    return ("ws" if web else "mqtt") + ("s" if tls else "")


def _listener(named: dict[str, Node], listener: ListenerDraft, draft: Draft) -> None:
    draft.carried(named.get("protocol"))
    for name, key in (("certfile", "certificate"), ("keyfile", "key"), ("cafile", "ca")):
        if SCHEMES[listener.scheme].tls or name == "certfile":
            draft.put_read(listener.tls, key, units.as_written, named.get(name))
    for name in ("max_connections", "require_certificate", "use_identity_as_username", "allow_anonymous",
                 "listener_allow_anonymous", "websockets_origin"):  # fmt: skip
        node = named.get(name)
        if node is None or node.said:
            continue
        with draft.reading(node):
            if name == "max_connections":
                draft.put_in(listener.keys, "connections_max", _connections(node), node)
            elif name.endswith("allow_anonymous"):
                listener.open = units.true(node)
                draft.carried(node)
            elif name == "websockets_origin" and listener.scheme.startswith("ws"):
                draft.put_in(listener.keys, "origins", [units.origin(node.text)], node)
            elif "certfile" not in named:
                draft.lost(node, why="the listener has no certificate")
            elif name == "require_certificate":
                draft.put_in(listener.tls, "verify", units.required(node), node)
            elif name == "use_identity_as_username" and "cafile" in named:
                draft.put_in(listener.tls, "user", "common_name" if units.true(node) else "none", node)


def _sessions(nodes: Sequence[Node], draft: Draft) -> None:
    """Reads limits of all clients, and the store."""
    for node in nodes:
        with draft.reading(node):
            match node.name:
                case "persistence":
                    if not units.true(node):
                        raise SoAnyway("there is no [journal]")
                    draft.put_journal(node)
                case "persistence_location":
                    if not any(one.name == "persistence" and one.text == "true" for one in nodes):
                        raise SoAnyway("persistence is off")
                    draft.put_journal(node)
                case "autosave_interval" | "autosave_on_changes" | "persistence_file":
                    draft.same(node)
                case "set_tcp_nodelay" | "retain_available" | "queue_qos0_messages" | "allow_duplicate_messages":
                    (draft.same if units.true(node) != (node.name == "queue_qos0_messages") else draft.lost)(node)
                case "max_inflight_messages" | "max_packet_size" | "message_size_limit" | "max_keepalive":
                    _of_each(node, draft)
                case "persistent_client_expiration":
                    count, days = node.text[:-1], _EXPIRY_DAYS.get(node.text[-1:], 1 / 24)
                    if not re.fullmatch(r"[0-9]{1,4}[hdwmy]", node.text):
                        raise Unreadable(f"{node.text[:40]!r} is not a time such as 14d")
                    _all(draft, "session_expiry_max", units.toml_duration(round(int(count) * days * DAY_MS)), node)
                case "memory_limit":
                    if not units.number(node):
                        raise SoAnyway("10 % of the machine's memory is the default")
                    draft.put("pool", "memory", units.pool_memory(units.number(node), node), node)
                case "global_max_clients":
                    _all(draft, "connections_max", _connections(node), node)


def _connections(node: Node) -> int:
    return min(units.set_or(units.number(node), "the default is 10,000"), 1_000_000)


def _of_each(node: Node, draft: Draft) -> None:
    key, low, high = {
        "max_inflight_messages": ("in_flight_max", 1, 65_535), "max_packet_size": ("packet_max", 1000, _PACKET_MAX),
        "message_size_limit": ("packet_max", 1000, _PACKET_MAX), "max_keepalive": ("keep_alive_max", 1, 65_535),
    }[node.name]  # fmt: skip
    value = units.number(node)
    if value == 0 or (key == "packet_max" and value > high):
        raise SoAnyway("the default of the listener")
    if not low <= value <= high:
        raise Unreadable(f"{value} is out of range, {low} to {high:,}")
    text = units.toml_size(value) if key == "packet_max" else f"{value}s" if key == "keep_alive_max" else value
    _all(draft, key, text, node)


def _all(draft: Draft, key: str, value: object, node: Node) -> None:
    """Sets a key of every listener."""
    for one in draft.all_listeners():
        if key not in one.keys:
            one.put(key, value, said(node))
    draft.carried(node)


def _queued(nodes: Sequence[Node], draft: Draft) -> None:
    records = next((node for node in nodes if node.name == "max_queued_messages"), None)
    bytes_ = next((node for node in nodes if node.name == "max_queued_bytes"), None)
    policy = draft.policy("waiting", ("#",), "")
    with draft.reading(records, bytes_):
        most = units.number(records, QUEUED)
        if most > 0:
            source = said(records) if records is not None else f"max_queued_messages {QUEUED}, mosquitto's default"
            made = rule(discard("newest", keep_records=most), {"lag_records": f"> {most}"}, name="queued messages")
            policy.add(made, source)
        if bytes_ is not None and units.number(bytes_) > 0:
            limit = units.toml_size(units.number(bytes_))
            made = rule(discard("newest", keep_bytes=limit), {"lag_bytes": limit}, name="queued bytes")
            policy.add(made, said(bytes_))
        draft.carried(*(node for node in (records, bytes_) if units.number(node) > 0))
        draft.same(records, bytes_, why="there is no limit")


MOSQUITTO = Origin("mosquitto", "mosquitto", (), read_lines, read)
