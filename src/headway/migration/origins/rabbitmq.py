"""RabbitMQ: ``rabbitmq.conf``, and its definitions or policies as JSON.

Rules:
- RabbitMQ applies one policy to a queue, that of the highest priority. Here the first that covers it counts, so each
  has the rule of ``consumer_timeout``, too.
- A pattern is a regular expression there. One that is a name, or that fits every name, has a counterpart.
- The last line of a repeated setting counts, also of several files. ``listeners.tcp = none`` counts before all others.
- Clients of MQTT without a name are the default user's, and guest comes in from the same machine only. Where that user
  may not do everything, nobody is let in without a name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from headway.migration.draft import Draft, Keyed, ListenerDraft, Unreadable, discard, queue_filter, rule, said, units
from headway.migration.formats import ITEM, File, Kind, Node, read_json, read_lines
from headway.migration.origins.origin import Origin
from headway.server.protocols import SCHEMES

TIMEOUT_MS = 1_800_000
UNITS = {
    "": 1, "b": 1, "k": 1024, "kib": 1024, "ki": 1024, "kb": 1000, "m": 1024**2, "mib": 1024**2, "mi": 1024**2,
    "mb": 10**6, "g": 1024**3, "gib": 1024**3, "gi": 1024**3, "gb": 10**9, "tb": 10**12, "tib": 1024**4,
}  # fmt: skip
QUEUES = "$queue/+"
_ALL = re.compile(r"\^?(\(?\.[*+]\)?)?\$?")
_EXACT = re.compile(r"\^((?:[\w :-]|\\[.\-])+)\$")
_LISTENERS = re.compile(r"(?:(mqtt|stomp)\.)?listeners\.(tcp|ssl)\.(\w+)")
_OWN = "amqp"
TLS = ("certfile", "keyfile", "cacertfile", "verify", "fail_if_no_peer_cert")
GUEST = "guest"
USERS = ("users", "permissions", "topic_permissions", "vhosts")
"""Definitions of users, and of where they may go."""
_EVERYTHING = (".*", "^.*", ".*$", "^.*$")
"""Permissions that leave nothing out."""
_DEFINED = ("auth_backends.", "default_users.", "definitions.", "load_definitions", "management.load_definitions")
"""Settings after which another place says who the users are, and what they may do."""


def parse(file: File) -> Node:
    return read_json(file) if file.is_json else read_lines(file, equals=True)


def read(roots: Sequence[Node], draft: Draft) -> None:
    draft.open = False
    in_json = [root for root in roots if any(node.kind is Kind.KEY for node in root.children)]
    draft.last_counts([root for root in roots if root not in in_json])
    for group in (group for root in in_json for group in root.walk()):
        draft.last_counts([group], but=(ITEM,))
    settings = {node.name: node for root in roots for node in root.children if node.text and node.name != ITEM}
    for root in roots:
        for node in root.children:
            _listener(node, settings, draft)
    if not any(SCHEMES[one.scheme].tls for one in draft.listeners):
        tls = [settings.get(f"ssl_options.{name}") for name in TLS]
        draft.same(*tls, why="there is no listener with TLS")
    _anonymous(settings, draft, elsewhere=any(root.all(*USERS) for root in roots))
    _limits(settings, draft)
    timeout = _timeout(settings.get("consumer_timeout"), draft)
    definitions = [root for root in roots if root.find("pattern")]
    listed = [policy for root in definitions for policy in root.walk() if policy.child("pattern") is not None]
    for policy in sorted(_latest(listed, draft), key=_priority):
        _policy(policy, timeout, draft)
    if timeout is not None and settings:
        draft.policy("queues", (QUEUES,), "").add(*timeout)
    for root in roots:
        draft.leftovers(root)


# -- rabbitmq.conf ----------------------------------------------------------------------------------------------------


def _listener(node: Node, settings: Mapping[str, Node], draft: Draft) -> None:
    match = _LISTENERS.fullmatch(node.name)
    kind = node.name if match is None else node.name.rpartition(".")[0]
    if kind.endswith(("listeners.tcp", "listeners.ssl")) and kind in settings and settings[kind].text == "none":
        draft.same(node, why="there is no such listener")
        return
    if match is not None:
        protocol, tls, place = match[1] or _OWN, match[2] == "ssl", f"{match[2]}-{match[3]}"
    elif node.name in ("web_mqtt.tcp.port", "web_mqtt.tcp.listener"):
        protocol, tls, place = "ws", False, "tcp"
    elif node.name in ("management.tcp.port", "management.listener.port"):
        port = units.number(node) if node.text.isdecimal() else 0
        if 0 < port < 65_536:
            draft.put("server", "admin", f"http://127.0.0.1:{port}", node, "on loopback")
        return
    else:
        return
    if node.text == "none":
        draft.same(node, why="there is no such listener")
        return
    host, _, port_text = node.text.rpartition(":")
    ip = settings.get("web_mqtt.tcp.ip") if protocol == "ws" else None
    scheme = f"{protocol}s" if tls else protocol
    address = host or (ip.text if ip is not None else "")
    made = draft.listener(f"{protocol}-{place}", scheme, address, units.port_of(port_text), node)
    if made is not None:
        draft.carried(ip)
        if tls:
            _tls(settings, made, draft)


def _tls(settings: Mapping[str, Node], made: ListenerDraft, draft: Draft) -> None:
    certificate, key, ca, verify, needed = (settings.get(f"ssl_options.{name}") for name in TLS)
    wanted = "none"
    if verify is not None and verify.text == "verify_peer":
        wanted = "required" if needed is not None and needed.text == "true" else "optional"
    elif verify is not None and verify.text != "verify_none":
        draft.close(verify)  # RabbitMQ would not start
    draft.put_tls(made, wanted, verify, needed, certificate=certificate, key=key, ca=ca)
    if wanted != "none":
        made.tls["user"] = Keyed("none", "a certificate says not who a client is, unless it asks for EXTERNAL")


def _anonymous(settings: Mapping[str, Node], draft: Draft, *, elsewhere: bool) -> None:
    """Lets clients of MQTT in without a name, if the user that they are there exists for sure and may do everything.
    ``elsewhere``: definitions say who may do what."""
    node = settings.get("mqtt.allow_anonymous")
    if node is None:
        return
    listeners = [one for one in draft.listeners if one.name.startswith(("mqtt-", "ws-"))]
    if not listeners:
        draft.lost(node, why="the file has no listener for it")
    with draft.reading(node):
        text = {name: one.text for name, one in settings.items()}
        named = text.get("mqtt.default_user", GUEST)
        password = text.get("mqtt.default_pass", GUEST)
        exists = (
            {named} == {text.get("anonymous_login_user", named), text.get("default_user", GUEST)}
            and {password} == {text.get("anonymous_login_pass", password), text.get("default_pass", GUEST)}
            and text.get("mqtt.vhost", "/") == text.get("default_vhost", "/")
            and not elsewhere and not any(name.startswith(_DEFINED) for name in text)
        )  # fmt: skip
        rights = (text.get(f"default_permissions.{name}", ".*") for name in ("configure", "read", "write"))
        sure = units.true(node) and exists and all(right in _EVERYTHING for right in rights)
        loopback = text.get(f"loopback_users.{named}", "true" if named == GUEST else "false")
        from_afar = loopback == "false" or text.get("loopback_users") == "none"
        for one in listeners:
            one.open = sure
            if sure and not from_afar:
                one.here = "127.0.0.1"
                one.source += f"; on {one.host} there, and {named} comes in from loopback only"
        draft.carried(node)


def _limits(settings: Mapping[str, Node], draft: Draft) -> None:
    relative, absolute = (settings.get(f"vm_memory_high_watermark.{name}") for name in ("relative", "absolute"))
    draft.put_read(draft.tables["pool"], "memory", _memory, absolute)
    if absolute is not None:
        draft.same(relative, why=f"{absolute.where} says how much, and counts")
    draft.put_read(draft.tables["pool"], "memory", _share, relative)
    queues = [one for one in draft.listeners if one.scheme in SCHEMES]
    mqtt = [one for one in queues if one.name.startswith(("mqtt-", "ws-"))]
    table: list[tuple[str, str, Callable[[Node], Any], list[ListenerDraft]]] = [
        ("max_message_size", "packet_max", _packet, queues), ("connection_max", "connections_max", _count, queues),
        ("handshake_timeout", "connect_timeout", _handshake, queues),
        ("proxy_protocol", "proxy_protocol", units.true, queues),
        ("mqtt.max_session_expiry_interval_seconds", "session_expiry_max", _expiry, mqtt),
        ("mqtt.prefetch", "in_flight_max", _window, mqtt),
    ]  # fmt: skip
    for name, key, write, some in table:
        node = settings.get(name)
        if node is None:
            continue
        if node.text == "infinity":
            draft.same(node, why="the default of the listeners")
            continue
        if not some and name.startswith("mqtt."):
            draft.lost(node, why="the file has no listener for it")
            continue
        with draft.reading(node):
            value = write(node)
            for one in some or draft.all_listeners():
                one.put(key, value, said(node))
            draft.carried(node)


def _timeout(node: Node | None, draft: Draft) -> tuple[dict[str, Any], str] | None:
    """Returns the rule of ``consumer_timeout`` with its source; None: there is no limit."""
    if node is None:
        time, source = TIMEOUT_MS, f"consumer_timeout {TIMEOUT_MS}, RabbitMQ's default"
    elif node.text in ("undefined", "infinity"):
        draft.same(node, why="there is no limit")
        return None
    else:
        time, source = 0, said(node)
        with draft.reading(node):
            time = units.not_negative(units.milliseconds(node), node)
            draft.carried(node)
    return (_late(time), source) if time else None


def _late(time_ms: int) -> dict[str, Any]:
    return rule("close_consumer", {"ack_age": units.toml_duration(time_ms)}, name="consumer timeout")


# -- definitions ------------------------------------------------------------------------------------------------------


def _latest(policies: Sequence[Node], draft: Draft) -> list[Node]:
    """Returns policies without those whose name a later one of the same virtual host has."""
    last = {(one.value("vhost"), one.value("name", f"at {number}")): one for number, one in enumerate(policies)}
    kept = set(last.values())
    for one in policies:
        if one not in kept:
            draft.same(*(node for node in one.walk() if node.text), why="a later policy has its name, and counts")
    return list(last.values())


def _priority(policy: Node) -> float:
    text = policy.value("priority")
    return -int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else 0.0


def _policy(policy: Node, timeout: tuple[dict[str, Any], str] | None, draft: Draft) -> None:
    pattern, name = policy.child("pattern"), policy.child("name")
    definition = policy.child("definition", "value") or policy
    assert pattern is not None
    _spread(definition)
    settings = [node for node in definition.children if node is not pattern and definition is not policy]
    about = [name, pattern, *policy.all("apply-to", "priority", "vhost")]
    try:
        filter = _filter(pattern)
        if policy.value("apply-to") == "exchanges":
            raise Unreadable("a policy is for consumers, not for exchanges")
        shown = name.shown[:80] if name is not None and name.text else "queues"
        made = draft.policy(shown, (filter,), said(pattern))
        if made.rules:
            raise Unreadable(f"the policy {made.name!r} is for the same queues, and of a higher priority")
    except Unreadable as error:
        draft.lost(*about, *settings, why=str(error))
        return
    rules = _rules(definition, draft)
    if not rules:
        draft.lost(*about, why="nothing of it is a rule here")
        return
    for one, source in rules:
        made.add(one, source)
    if timeout is not None and definition.child("consumer-timeout") is None:
        made.add(*timeout)
    draft.carried(*about)


def _spread(definition: Node) -> None:
    """Reads a definition that is a text of JSON, as ``rabbitmqctl list_policies`` prints it."""
    with suppress(ValueError, RecursionError):
        found = json.loads(definition.text)
        if isinstance(found, dict):
            for key, value in found.items():
                Node(str(key), definition.where, str(value), definition, Kind.KEY)
            definition.text = ""


def _filter(pattern: Node) -> str:
    text = pattern.text
    if _ALL.fullmatch(text):
        return QUEUES
    exact = _EXACT.fullmatch(text)
    if exact is None:
        raise Unreadable(f"{pattern.shown[:60]!r} is a regular expression; a policy is for one queue, or for all")
    return queue_filter(exact[1].replace("\\", ""))


def _rules(definition: Node, draft: Draft) -> list[tuple[dict[str, Any], str]]:
    rules: list[tuple[dict[str, Any], str]] = []
    overflow = definition.child("overflow")
    refuses = overflow is not None and overflow.text.startswith("reject")
    for node in definition.all("max-length", "max-length-bytes"):
        with draft.reading(node):
            most = units.not_negative(units.number(node), node)
            meter, keep = ("lag_records", "keep_records") if node.name == "max-length" else ("lag_bytes", "keep_bytes")
            when = {meter: f"> {most}"} if meter == "lag_records" else {meter: units.toml_size(most)}
            value: Any = most if meter == "lag_records" else units.toml_size(most)
            then: Any = "block_publishers" if refuses else discard("oldest", **{keep: value})
            rules.append((rule(then, when, name=node.name), said(node)))
            draft.carried(node)
    if overflow is not None and rules:
        draft.carried(overflow)
    for node in definition.all("consumer-timeout"):
        with draft.reading(node):
            rules.append((_late(units.milliseconds(node)), said(node)))
            draft.carried(node)
    draft.same(*definition.all("queue-mode"))
    return rules


# -- values -----------------------------------------------------------------------------------------------------------


def _share(node: Node) -> str:
    if not re.fullmatch(r"0?\.[0-9]{1,6}|1(\.0*)?", node.text) or not float(node.text):
        raise Unreadable(f"{node.shown[:40]!r} is not a share")
    return f"{float(node.text) * 100:g}%"


def _memory(node: Node) -> str:
    return units.pool_memory(units.size(node, UNITS), node)


def _packet(node: Node) -> str:
    return units.toml_size(_within(units.size(node, UNITS), 1000, 268_435_460))


def _count(node: Node) -> int:
    return _within(units.number(node), 1, 1_000_000)


def _window(node: Node) -> int:
    return _within(units.number(node), 1, 65_535)


def _handshake(node: Node) -> str:
    return units.toml_duration(_within(units.milliseconds(node), 10, 3_600_000))


def _expiry(node: Node) -> str:
    return f"{_within(units.number(node), 0, 4_294_967_294)}s"


def _within(value: int, low: int, high: int) -> int:
    if not low <= value <= high:
        raise Unreadable(f"{value} is out of range, {low:,} to {high:,}")
    return value


SIGNS = ("pattern", "definition", "apply-to", "rabbit_version", "rabbitmq_version")
RABBITMQ = Origin("rabbitmq", "RabbitMQ", (), parse, read, json=True, signs=SIGNS)
