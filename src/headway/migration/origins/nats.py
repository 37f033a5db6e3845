"""NATS: the configuration of ``nats-server``."""

from __future__ import annotations

from collections.abc import Sequence

from headway.migration.draft import (
    Draft,
    ListenerDraft,
    Unreadable,
    milliseconds,
    number,
    origin,
    port_of,
    rule,
    said,
    size,
    toml_duration,
    toml_size,
    true,
)
from headway.migration.formats import Node, read_braces
from headway.migration.origins.origin import Origin

JOURNAL = "/var/lib/headway"
PENDING, DEADLINE = "64MiB", "10s"
"""NATS' defaults of ``max_pending`` and ``write_deadline``."""


def read(roots: Sequence[Node], draft: Draft) -> None:
    for root in roots:
        if root.child("authorization", "accounts", "operator") is not None:
            draft.open = False
        name = root.child("server_name")
        if name is not None and name.text and name.text.isprintable():
            draft.put("server", "name", name.text[:100], name)
        for node in root.all("http", "http_port", "monitor_port"):
            port = node.text.rpartition(":")[2]
            if port.isdecimal() and 0 < int(port[:6]) < 65_536:
                draft.put("server", "admin", f"http://127.0.0.1:{int(port)}", node, "on loopback")
            else:
                draft.lost(node, why="it has no port")
        for block in root.all("mqtt", "websocket"):
            _listener(block, draft)
    for root in roots:
        _clients(root, draft)
        for folder in (*root.all("store_dir"), *(one for block in root.all("jetstream") for one in block.children)):
            if folder.name in ("store_dir", "storedir"):
                draft.put("journal", "path", JOURNAL, folder, "in a folder of its own")
        for node in root.all("no_fast_producer_stall"):
            with draft.reading(node):
                if true(node):
                    draft.same(node)
                else:
                    draft.lost(node)
    _slow(roots, draft)
    for root in roots:
        draft.leftovers(root)


def _slow(roots: Sequence[Node], draft: Draft) -> None:
    """Reads the two limits of a slow consumer, which hold by default, too."""
    policy = draft.policy("slow consumers", ("#",), "")
    for name, meter, default in (("max_pending", "lag_bytes", PENDING), ("write_deadline", "blocked_time", DEADLINE)):
        nodes = [node for root in roots for node in root.all(name)]
        if not nodes:
            policy.add(rule("disconnect", {meter: default}, name=name), f"{name} {default}, NATS' default")
        for node in nodes:
            with draft.reading(node):
                limit = toml_size(size(node)) if meter == "lag_bytes" else toml_duration(milliseconds(node, "s"))
                policy.add(rule("disconnect", {meter: limit}, name=name), said(node))
                draft.carried(node)


def _listener(block: Node, draft: Draft) -> None:
    address = block.child("listen", "port")
    if address is None:
        return
    host, _, port = address.text.rpartition(":")
    given = block.child("host")
    if given is not None and not host:
        host = given.text
    tls = block.child("tls")
    scheme = "ws" if block.name == "websocket" else block.name
    scheme = f"{scheme}s" if tls is not None else scheme
    made = draft.listener(block.name, scheme, host, port_of(port), address)
    if made is None:
        return
    if given is not None:
        draft.carried(given)
    for name, key, write in (
        ("max_ack_pending", "in_flight_max", _window), ("compression", "compression", true),
        ("allowed_origins", "origins", _origins), ("same_origin", "origins", _same_origin),
    ):  # fmt: skip
        node = block.child(name)
        if node is None:
            continue
        with draft.reading(node):
            value = write(node)
            if value is None:
                draft.same(node)
            else:
                draft.put_in(made.keys, key, value, node)
                for item in node.children:
                    draft.carried(item)
    no_tls = block.child("no_tls")
    if no_tls is not None:
        draft.carried(no_tls)
    if tls is not None:
        _tls(tls, made, draft)


def _window(node: Node) -> int:
    if not 1 <= number(node) <= 65_535:
        raise Unreadable(f"{node.text}: from 1 to 65,535")
    return number(node)


def _origins(node: Node) -> list[str]:
    return [origin(item.text) for item in node.children] or [origin(node.text)]


def _same_origin(node: Node) -> list[str] | None:
    return None if true(node) else ["*"]


def _tls(tls: Node, made: ListenerDraft, draft: Draft) -> None:
    for name, key in (("cert_file", "certificate"), ("key_file", "key"), ("ca_file", "ca")):
        node = tls.child(name)
        if node is not None:
            draft.put_in(made.tls, key, node.text, node)
    node = tls.child("verify")
    if node is not None:
        with draft.reading(node):
            draft.put_in(made.tls, "verify", "required" if true(node) else "none", node)


def _clients(root: Node, draft: Draft) -> None:
    """Reads limits of all clients."""
    for names, key, low, high in (
        (("max_payload",), "packet_max", 1000, 268_435_460),
        (("max_connections", "max_conn"), "connections_max", 1, 10**6),
        (("max_subscriptions", "max_subs"), "subscriptions_max", 1, 10**6),
    ):  # fmt: skip
        for node in root.all(*names):
            with draft.reading(node):
                value = size(node) if key == "packet_max" else size(node, {"": 1, "k": 1000, "m": 10**6})
                if value < 1:
                    draft.same(node, why="the default of the listeners")
                    continue
                if not low <= value <= high:
                    raise Unreadable(f"{node.text}: from {low:,} to {high:,}")
                for one in draft.all_listeners():
                    one.put(key, toml_size(value) if key == "packet_max" else value, said(node))
                draft.carried(node)


NATS = Origin("nats", "NATS", (), read_braces, read, blocks=True)
