"""NATS: the configuration of ``nats-server``.

Rules:
- Names are the same in any case of letters. Of a setting that is there twice, a block too, the last one counts.
- ``$NAME`` is the value of the setting NAME before it, in the same block or around it; or of the environment, which
  nobody knows here.
- k, m and g are thousands; kb, ki and kib (and so on) are 1024s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headway.migration.draft import Draft, ListenerDraft, SoAnyway, rule, said, units
from headway.migration.formats import ITEM, File, Includes, Node, read_braces
from headway.migration.origins.origin import Origin

DEFAULT = "the default of the listeners"
PENDING, DEADLINE = "64MiB", "10s"
"""NATS' defaults of ``max_pending`` and ``write_deadline``."""
UNITS: Mapping[str, int] = {"": 1} | {
    f"{letter}{more}": (1024 if more else 1000) ** power
    for power, letter in enumerate("kmgtpe", 1) for more in ("", "b", "i", "ib")
}  # fmt: skip
_STORE_KEYS = ("key", "ek", "encryption_key", "prev_key", "prev_ek", "prev_encryption_key")
"""Names of the keys by which a store is encrypted."""
_OTHER_NAMES = {"net": "host", "ws": "websocket"}


def parse(file: File) -> Node:
    root = _with_included(file, Includes())
    _resolve(root)
    for node in root.walk():
        node.name = _OTHER_NAMES.get(node.name.lower(), node.name.lower())
        node.secret = node.secret or (node.name in _STORE_KEYS and node.within("jetstream"))
    return root


def _with_included(file: File, includes: Includes) -> Node:
    """Reads a file, with those that it includes in their places. One that cannot be read stays a setting."""
    root = read_braces(file)
    for group in list(root.walk()):
        children: list[Node] = []
        for node in group.children:
            files = includes.load(file, node.text) if node.name.lower() == "include" and node.text else None
            inner = [one for other in files or () for one in _with_included(other, includes).children]
            for one in inner:
                one.parent = group
            children += inner if files is not None else [node]
        group.children = children
    return root


def _resolve(root: Node) -> None:
    """Puts values for variables."""
    seen: dict[int, dict[str, Node]] = {}
    for node in root.walk():
        if node.parent is None:
            continue
        text = node.text
        if text.startswith("$") and not text.startswith("$2a$") and not node.quoted:
            around: Node | None = node.parent
            while around is not None and text[1:] not in seen.get(id(around), {}):
                around = around.parent
            if around is not None:
                named = seen[id(around)][text[1:]]
                named.used = named.secret = True  # it may be a password, and is shown where it is used
                if not named.children:  # a block that stands in many places would grow without end
                    node.text = named.text
        seen.setdefault(id(node.parent), {})[node.name] = node


def read(roots: Sequence[Node], draft: Draft) -> None:
    draft.last_counts(roots)
    for root in roots:
        for group in (group for block in root.children for group in block.walk()):
            draft.last_counts([group], but=(ITEM,))
        for node in root.children:
            if node.used and draft.option(node) is None:
                draft.same(*node.walk(), why="other settings have its value")
    for root in roots:
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
                limit = units.same_size(node, UNITS) if meter == "lag_bytes" else units.same_time(node, "s")
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
    tls, no_tls = block.child("tls"), block.child("no_tls")
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
    draft.carried(no_tls)
    if tls is not None:
        _tls(tls, made, draft)
    elif block.name == "websocket" and (no_tls is None or no_tls.text.lower() not in ("true", "yes", "on")):
        made.open = False  # NATS would not start


def _tls(tls: Node, made: ListenerDraft, draft: Draft) -> None:
    tls.said = True
    wanted = tls.all("verify", "verify_and_map", "verify_cert_and_check_known_urls")
    verify = "none"
    for node in wanted:
        with draft.reading(node):
            if units.true(node):
                verify = "required"
    draft.put_tls(made, verify, tls.child("verify"), certificate=tls.child("cert_file"), key=tls.child("key_file"),
                  ca=tls.child("ca_file"))  # fmt: skip


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
    return units.toml_size(units.within(units.set_or(units.size(node, UNITS), DEFAULT), 1000, 268_435_460, node))


def _count(node: Node) -> int:
    return units.within(units.set_or(units.size(node, UNITS), DEFAULT), 1, 10**6, node)


NATS = Origin("nats", "NATS", (), parse, read, blocks=True)
