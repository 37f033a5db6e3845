"""Eclipse Mosquitto: ``mosquitto.conf``.

Rules:
- What follows a ``listener`` belongs to it, up to the next one. What stands before the first is for the listener of
  ``port`` and ``bind_address``. ``allow_anonymous`` and files of users are for all listeners, wherever they stand, but
  after ``per_listener_settings true`` for their own alone.
- The last line of a repeated setting counts. mosquitto refuses a second file of users, so two of them let in nobody.
- Limits of what may wait for a client are written with their defaults where the file has listeners or limits, so that
  it is served as there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

from headway.migration.draft import Draft, ListenerDraft, SoAnyway, Unreadable, discard, rule, said, units
from headway.migration.formats import File, Includes, Node, read_lines
from headway.migration.origins.origin import Origin

QUEUED = 1000
PORT = 1883
DAY_MS = 86_400_000
_PACKET_MAX = 268_435_460
_EXPIRY_DAYS = {"d": 1, "w": 7, "m": 30, "y": 365}
_SECURITY = ("allow_anonymous", "password_file", "acl_file", "psk_file")
_OF_LISTENER = (
    "protocol", "max_connections", "socket_domain", "listener_allow_anonymous", "websockets_origin", "certfile",
    "keyfile", "cafile", "capath", "require_certificate", "use_identity_as_username", "use_subject_as_username",
    "psk_hint",
)  # fmt: skip
_FAMILIES = {"ipv4": ("0.0.0.0", IPv4Address), "ipv6": ("::", IPv6Address)}
"""Families of ``socket_domain``, each with the address of all its listeners and the form of others."""


def parse(file: File) -> Node:
    root, includes = read_lines(file, spaces=True), Includes()
    for node in list(root.children):
        others = None
        if node.name == "include_dir":
            others = includes.load(file, f"{node.text}/?*.conf", order=_order, hidden=True)
        node.used = others is not None
        for line in (line for other in others or () for line in read_lines(other, spaces=True).children):
            line.parent = node
            node.children.append(line)
    return root


def _order(name: str) -> list[tuple[int, int]]:
    """Returns the key by which mosquitto sorts the files of a folder: letter by letter, first without regard to case.
    Raises ValueError for a name that is not ASCII: there it differs from machine to machine."""
    return list(zip(name.upper().encode("ascii"), name.encode("ascii"), strict=True))


class _Block(NamedTuple):
    """A listener's settings."""

    opening: Node | None
    """The line of its port; None: of the listener of ``port`` and ``bind_address``."""
    own: dict[str, list[Node]]
    security: dict[str, Node]


class _Lines:
    """The lines of all files, each where it belongs."""

    def __init__(self, roots: Sequence[Node], draft: Draft) -> None:
        self._draft = draft
        self._default = _Block(None, {}, {})
        self.blocks = [self._default]
        self.general: dict[str, Node] = {}
        self.security: dict[str, Node] = {}
        for root in roots:
            self._read(root)
        self.apart = self._on(self.general.get("per_listener_settings"))

    def _read(self, group: Node) -> None:
        block = self._default  # each file begins outside of all listeners
        for node in group.children:
            if node.name == "listener":
                block = _Block(node, {}, {})
                self.blocks.append(block)
            elif node.name == "include_dir" and node.used:
                self._draft.carried(node)
                self._read(node)
            elif node.name in _SECURITY:
                apart = self._on(self.general.get("per_listener_settings"))
                self._set(block.security if apart else self.security, node)
            elif node.name in _OF_LISTENER:
                block.own.setdefault(node.name, []).append(node)
            else:
                self._set(self.general, node)

    def _set(self, names: dict[str, Node], node: Node) -> None:
        before = names.get(node.name)
        if before is not None:
            if node.name in _SECURITY and node.name.endswith("_file") and node.text != before.text:
                self._draft.close(node)  # mosquitto would not start
            option = self._draft.option(node)
            if option is not None and option.here:
                self._draft.same(before, why=f"{node.where} sets it again, and the last line counts")
        names[node.name] = node

    def of(self, block: _Block, name: str) -> Node | None:
        """Returns a setting about who may come in, as it holds for a listener."""
        return (block.security if self.apart else self.security).get(name)

    def _on(self, node: Node | None) -> bool:
        try:
            return node is not None and _true(node)
        except Unreadable:
            return False


def _true(node: Node) -> bool:
    """Returns whether a setting is on, of the four words that mosquitto takes."""
    if node.text not in ("true", "false", "0", "1"):
        raise Unreadable(f"{node.shown[:60]!r} is not true or false")
    return node.text in ("true", "1")


def read(roots: Sequence[Node], draft: Draft) -> None:
    draft.open = False
    lines = _Lines(roots, draft)
    made = list(_listeners(lines, draft))
    _users(lines, made, draft)
    for group in (lines.security, *(block.security for block in lines.blocks)):
        node = group.get("allow_anonymous")
        if node is not None:
            with draft.reading(node):
                _true(node)
                draft.same(node, why="it is for no listener of this file")
    _sessions(lines.general, draft)
    _queued(lines.general, draft)
    for root in roots:
        draft.leftovers(root)


def _users(lines: _Lines, made: Sequence[tuple[_Block, ListenerDraft]], draft: Draft) -> None:
    if not lines.apart:
        if (node := lines.security.get("password_file")) is not None:
            draft.put_password_file(node)
        return
    files = [(lines.of(block, "password_file"), listener) for block, listener in made]
    # A listener with its own users would let in those of the others here; one that lets in anybody loses nothing.
    paths = {node.text if node is not None else "" for node, listener in files if node is not None or not listener.open}
    for node, _ in files:
        if node is not None and len(paths) == 1:
            draft.put_password_file(node)
        else:
            draft.lost(node, why="it is for one listener, and [auth.users] are those of all listeners here")


def _listeners(lines: _Lines, draft: Draft) -> Iterator[tuple[_Block, ListenerDraft]]:
    """Makes the listeners."""
    port, bind = lines.general.get("port"), lines.general.get("bind_address")
    for block in lines.blocks:
        opening = block.opening or port or bind
        if opening is None:
            continue
        own = {name: nodes[-1] for name, nodes in block.own.items()}
        for nodes in block.own.values():
            for node in nodes[:-1]:
                if node.name != "websockets_origin":
                    draft.same(node, why=f"{nodes[-1].where} sets it again, and the last line counts")
        words = opening.text.split()
        if block.opening is not None:
            number, host = words[0] if words else "", words[1] if len(words) > 1 else ""
        else:
            number, host = port.text if port is not None else str(PORT), bind.text if bind is not None else ""
        host = _everywhere(host, own.get("socket_domain"), draft)
        protocol = own["protocol"].text.strip() if "protocol" in own else "mqtt"
        # With a hint, a listener takes keys that clients and broker share, over TLS without a certificate.
        tls = "s" if "certfile" in own or "psk_hint" in own else ""
        scheme = {"mqtt": f"mqtt{tls}", "websockets": f"ws{tls}"}.get(protocol, f"protocol {protocol}")
        taken = units.port_of(number)
        listener = draft.listener(f"{scheme}-{taken}", scheme, host, taken, opening)
        if listener is None:
            draft.lost(*own.values(), why="as its listener")
            continue
        if block.opening is None:
            draft.carried(bind)
        _listener(own, block.own.get("websockets_origin", []), listener, draft)
        allowed = own.get("listener_allow_anonymous") or lines.of(block, "allow_anonymous")
        listener.open = False
        if allowed is not None:
            with draft.reading(allowed):
                listener.open = _true(allowed)
                draft.carried(allowed)
        yield block, listener


def _everywhere(host: str, domain: Node | None, draft: Draft) -> str:
    """Returns the address of a listener, which without one is on all of its family."""
    if domain is None:
        return host
    everywhere, form = _FAMILIES.get(domain.text, ("", None))
    if not host and everywhere:
        draft.carried(domain)
        return everywhere
    with suppress(ValueError):
        if form is not None and form(host):
            draft.same(domain, why="the address says so")
            return host
    draft.lost(domain, why="it is not the family of the listener's address: write the address as its url")
    draft.close(domain)  # mosquitto would not start, or listen on some addresses of a name only
    return host


def _listener(own: dict[str, Node], origins: Sequence[Node], listener: ListenerDraft, draft: Draft) -> None:
    draft.carried(own.get("protocol"))
    limit = own.get("max_connections")
    draft.put_read(listener.keys, "connections_max", _connections, limit)
    if listener.scheme.startswith("ws") and origins:
        with draft.reading(*origins):
            draft.put_in(listener.keys, "origins", [units.origin(node.text) for node in origins], origins[-1])
            draft.carried(*origins)
    required, identity, subject = (
        own.get(name) for name in ("require_certificate", "use_identity_as_username", "use_subject_as_username")
    )
    if "certfile" not in own:
        draft.lost(required, identity, why="the listener has no certificate")
        return
    verify = "none"
    with draft.reading(required):
        if required is not None:
            verify = "required" if _true(required) else "none"
    draft.put_tls(listener, verify, required, certificate=own["certfile"], key=own.get("keyfile"),
                  ca=own.get("cafile"))  # fmt: skip
    with draft.reading(identity):
        if identity is not None and verify == "none":
            raise Unreadable("without require_certificate true nobody shows one")
        if identity is not None and subject is None:
            draft.put_in(listener.tls, "user", "common_name" if _true(identity) else "none", identity)
    if verify != "none" and "user" not in listener.tls:
        draft.put_in(listener.tls, "user", "none", required or own["certfile"], "use_identity_as_username is off")


def _sessions(settings: dict[str, Node], draft: Draft) -> None:
    """Reads limits of all clients, and the store."""
    for node in settings.values():
        with draft.reading(node):
            match node.name:
                case "persistence":
                    if not _true(node):
                        raise SoAnyway("there is no [journal]")
                    draft.put_journal(node)
                case "persistence_location":
                    if "persistence" not in settings or not _true(settings["persistence"]):
                        raise SoAnyway("persistence is off")
                    draft.put_journal(node)
                case "autosave_interval" | "autosave_on_changes" | "persistence_file":
                    draft.same(node)
                case "set_tcp_nodelay" | "retain_available" | "queue_qos0_messages" | "allow_duplicate_messages":
                    (draft.same if _true(node) != (node.name == "queue_qos0_messages") else draft.lost)(node)
                case "max_inflight_messages" | "max_packet_size" | "message_size_limit" | "max_keepalive":
                    _of_each(node, draft)
                case "persistent_client_expiration":
                    count, days = node.text[:-1], _EXPIRY_DAYS.get(node.text[-1:], 1 / 24)
                    if not re.fullmatch(r"[0-9]{1,4}[hdwmy]", node.text):
                        raise Unreadable(f"{node.shown[:40]!r} is not a time such as 14d")
                    _all(draft, "session_expiry_max", round(int(count) * days * DAY_MS), units.toml_duration, node)
                case "memory_limit":
                    if not units.number(node):
                        raise SoAnyway("10 % of the machine's memory is the default")
                    draft.put("pool", "memory", units.pool_memory(units.number(node), node), node)
                case "global_max_clients":
                    _all(draft, "connections_max", _connections(node), int, node)


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
    write = units.toml_size if key == "packet_max" else _seconds if key == "keep_alive_max" else int
    _all(draft, key, value, write, node)


def _seconds(time_s: int) -> str:
    return f"{time_s}s"


def _all(draft: Draft, key: str, value: int, write: Callable[[int], object], node: Node) -> None:
    """Sets a key of every listener. Of two settings for one key the lower counts."""
    for one in draft.all_listeners():
        if key not in one.lowest or value < one.lowest[key]:
            one.lowest[key] = value
            one.put(key, write(value), said(node))
    draft.carried(node)


def _queued(settings: dict[str, Node], draft: Draft) -> None:
    records, bytes_ = settings.get("max_queued_messages"), settings.get("max_queued_bytes")
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


MOSQUITTO = Origin("mosquitto", "mosquitto", (), parse, read)
