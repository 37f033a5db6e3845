"""NATS: the configuration of ``nats-server``."""

from __future__ import annotations

from collections.abc import Sequence

from headway.migration.draft import Draft, SoAnyway, rule, said, units
from headway.migration.formats import Node, read_braces
from headway.migration.origins.origin import Origin

DEFAULT = "the default of the listeners"
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
            draft.put_admin(node)
        for block in root.all("mqtt", "websocket"):
            _listener(block, draft)
    for root in roots:
        _clients(root, draft)
        for folder in (*root.all("store_dir"), *(one for block in root.all("jetstream") for one in block.children)):
            if folder.name in ("store_dir", "storedir"):
                draft.put_journal(folder)
        for node in root.all("no_fast_producer_stall"):
            with draft.reading(node):
                (draft.same if units.true(node) else draft.lost)(node)
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
                limit = units.same_size(node) if meter == "lag_bytes" else units.same_time(node, "s")
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
    made = draft.listener(block.name, scheme, host, units.port_of(port), address)
    if made is None:
        return
    draft.carried(given)
    draft.put_read(made.keys, "in_flight_max", _window, block.child("max_ack_pending"))
    draft.put_read(made.keys, "compression", units.true, block.child("compression"))
    allowed = block.child("allowed_origins")
    draft.put_read(made.keys, "origins", _origins, allowed)
    if allowed is not None and "origins" in made.keys:
        draft.carried(*allowed.children)
    draft.put_read(made.keys, "origins", _same_origin, block.child("same_origin"))
    draft.carried(block.child("no_tls"))
    if tls is not None:
        for name, key in (("cert_file", "certificate"), ("key_file", "key"), ("ca_file", "ca")):
            draft.put_read(made.tls, key, units.as_written, tls.child(name))
        draft.put_read(made.tls, "verify", units.required, tls.child("verify"))


def _window(node: Node) -> int:
    return units.within(units.number(node), 1, 65_535, node)


def _origins(node: Node) -> list[str]:
    return [units.origin(item.text) for item in node.children] or [units.origin(node.text)]


def _same_origin(node: Node) -> list[str]:
    if units.true(node):
        raise SoAnyway
    return ["*"]


def _clients(root: Node, draft: Draft) -> None:
    """Reads limits of all clients."""
    draft.put_everywhere("packet_max", _payload, *root.all("max_payload"))
    draft.put_everywhere("connections_max", _count, *root.all("max_connections", "max_conn"))
    draft.put_everywhere("subscriptions_max", _count, *root.all("max_subscriptions", "max_subs"))


def _payload(node: Node) -> str:
    return units.toml_size(units.within(units.set_or(units.size(node), DEFAULT), 1000, 268_435_460, node))


def _count(node: Node) -> int:
    return units.within(units.set_or(units.size(node, {"": 1, "k": 1000, "m": 10**6}), DEFAULT), 1, 10**6, node)


NATS = Origin("nats", "NATS", (), read_braces, read, blocks=True)
