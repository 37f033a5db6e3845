"""What a configuration of another system says of access, ports, users and limits: a second reading, which shares no
code with ``headway.migration``. It knows only the settings that the grammars of ``test_import_many.py`` write."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

ANY = "0.0.0.0"


class Door(NamedTuple):
    """A listener."""

    host: str
    port: int
    open: bool
    """Whether anybody comes in without a name, for sure."""
    there: bool = True
    """Whether the broker can have it: its protocol is spoken, and its certificates can be used."""
    limits: tuple[tuple[str, int], ...] = ()


class Reading(NamedTuple):
    doors: Sequence[Door]
    users: frozenset[str] = frozenset()
    limits: Mapping[str, int] = {}


def _whole(text: str) -> int:
    return int(text) if re.fullmatch(r"-?\d+", text) else 0


def _host(text: str) -> str:
    return ANY if text in ("", "*", ANY) else text.strip("[]")


# -- mosquitto --------------------------------------------------------------------------------------------------------

HARMLESS = {
    "max_queued_messages", "max_inflight_messages", "max_packet_size", "message_size_limit", "persistence", "log_type",
    "log_dest", "max_keepalive", "sys_interval", "connection_messages", "user", "pid_file",
}  # fmt: skip
OF_LISTENER = {
    "protocol", "max_connections", "certfile", "keyfile", "cafile", "require_certificate", "use_identity_as_username",
    "listener_allow_anonymous",
}  # fmt: skip
STRINGS = {"password_file", "acl_file", "certfile", "keyfile", "cafile"}


def mosquitto(folder: Path, text: str) -> Reading:
    first: dict[str, str] = {}
    blocks, common, general = [first], dict[str, str](), dict[str, str]()
    closed = apart = False

    def walk(lines: Sequence[str]) -> None:
        nonlocal closed, apart
        current = first
        for line in lines:
            name, _, value = line.strip().partition(" ")
            value = value.strip()
            if not name or name.startswith("#"):
                continue
            if name == "listener":
                current = {"listener": value}
                blocks.append(current)
            elif name == "include_dir":
                closed |= not (folder / value).exists()
                for path in sorted((folder / value).glob("*.conf")):
                    walk(path.read_text().splitlines())
            elif name == "per_listener_settings":
                apart = value in ("true", "1")
            elif name in ("allow_anonymous", "password_file", "acl_file"):
                where = current if apart else common
                closed |= name in STRINGS and where.get(name, value) != value
                where[name] = value
            elif name in ("port", "bind_address"):
                first[name] = value
            elif name in HARMLESS:
                general[name] = value
            elif name in OF_LISTENER:
                current[name] = value
            else:
                closed = True

    walk(text.splitlines())
    security = [one if apart else common for one in blocks]
    if any("acl_file" in one for one in (common, *blocks)):
        closed = True
    doors: list[Door] = []
    files: set[str] = set()
    for block, rights in zip(blocks, security, strict=True):
        if block is first and not {"port", "bind_address"} & set(first):
            continue
        words = block["listener"].split() if "listener" in block else [
            first.get("port", "1883"), first.get("bind_address", "")
        ]  # fmt: skip
        allowed = block.get("listener_allow_anonymous", rights.get("allow_anonymous", "false")) in ("true", "1")
        tls = "certfile" in block
        asked = block.get("require_certificate") in ("true", "1")
        usable = not tls or (
            Path(block["certfile"]).exists() and "keyfile" in block and (not asked or "cafile" in block)
        )
        spoken = block.get("protocol", "mqtt") in ("mqtt", "websockets")
        most = _whole(block.get("max_connections", "-1"))
        limits = (("connections_max", most),) if most > 0 else ()
        doors.append(Door(
            _host(words[1] if len(words) > 1 else ""), int(words[0]), allowed, spoken and usable, limits,
        ))  # fmt: skip
        if spoken and ("password_file" in rights or not allowed):
            files.add(rights.get("password_file", ""))
    users: set[str] = set()
    if len(files) == 1 or not apart:
        path = Path(common.get("password_file", "") if not apart else next(iter(files), ""))
        if path.is_file():
            users = {line.partition(":")[0] for line in path.read_text().splitlines()}
    packets = [_whole(general[name]) for name in ("max_packet_size", "message_size_limit") if name in general]
    limits = {
        "packet_max": min((size for size in packets if size >= 1000), default=0),
        "in_flight_max": _whole(general.get("max_inflight_messages", "0")),
        "keep_records": _whole(general.get("max_queued_messages", "1000")),
    }
    doors = [door._replace(open=door.open and not closed) for door in doors]
    return Reading(doors, frozenset(users), {name: value for name, value in limits.items() if value > 0})


# -- NATS -------------------------------------------------------------------------------------------------------------

KNOWN = {
    "port", "server_name", "max_payload", "max_pending", "max_connections", "mqtt", "websocket", "debug", "logtime",
    "write_deadline", "max_subscriptions",
}  # fmt: skip
KNOWN_IN = {"port", "host", "listen", "max_ack_pending", "no_tls"}
NAMES = {"net": "host", "ws": "websocket", "max_conn": "max_connections"}
LETTERS = "kmgt"


def nats(folder: Path, text: str) -> Reading:
    tree = _blocks(folder, text)
    used = set(re.findall(r"\$(\w+)", text))
    closed = any(key.lower() not in KNOWN and NAMES.get(key.lower()) is None and key not in used for key in tree)
    said: dict[str, Any] = {}
    for key, value in tree.items():
        said[NAMES.get(key.lower(), key.lower())] = value
    doors: list[Door] = []
    for name in ("mqtt", "websocket"):
        block = said.get(name)
        if not isinstance(block, dict):
            continue
        here: dict[str, str] = {}
        for key, value in block.items():
            here[NAMES.get(key.lower(), key.lower())] = _looked_up(value, block, tree)
        closed |= bool(set(here) - KNOWN_IN)
        host, port = here.get("host", ""), here.get("port", "")
        if "listen" in here:
            host, _, port = here["listen"].rpartition(":")
        sure = name == "mqtt" or here.get("no_tls") == "true"
        if port.isdigit() and 0 < int(port) < 65_536:
            doors.append(Door(_host(host), int(port), sure))
    limits = {
        key: _nats_size(_looked_up(said[name], {}, tree))
        for name, key in (
            ("max_payload", "packet_max"), ("max_connections", "connections_max"), ("max_pending", "lag_bytes")
        ) if name in said
    }  # fmt: skip
    return Reading([door._replace(open=door.open and not closed) for door in doors], limits=limits)


def _looked_up(value: Any, block: dict[str, Any], tree: dict[str, Any]) -> str:
    text = str(value)
    return str({**tree, **block}.get(text[1:], text)) if text.startswith("$") else text


def _nats_size(text: str) -> int:
    number = re.match(r"\d+", text)
    assert number is not None
    unit = text[number.end() :].strip().lower()
    if not unit:
        return int(number[0])
    return int(number[0]) * (1000 if len(unit) == 1 else 1024) ** (LETTERS.index(unit[0]) + 1)


def _blocks(folder: Path, text: str) -> dict[str, Any]:
    """Reads blocks: a line has one setting, opens a block or closes one."""
    stack: list[dict[str, Any]] = [{}]
    for line in text.splitlines():
        line = re.sub(r"\s*(#|//).*$", "", line).strip().rstrip(",;")
        if not line:
            continue
        if line == "}":
            stack.pop()
        elif match := re.fullmatch(r"([\w.]+)\s*[:=]?\s*\{", line):
            inner: dict[str, Any] = {}
            stack[-1].pop(match[1], None)
            stack[-1][match[1]] = inner
            stack.append(inner)
        elif match := re.fullmatch(r"include\s+(\S+)", line):
            path = folder / match[1]
            stack[-1].update(_blocks(folder, path.read_text()) if path.exists() else {"include": match[1]})
        else:
            match = re.fullmatch(r"([\w.]+)(?:\s*[:=]\s*|\s+)(.*)", line)
            assert match is not None, line
            stack[-1].pop(match[1], None)
            stack[-1][match[1]] = match[2].strip("'\"")
    return stack[0]


# -- RabbitMQ ---------------------------------------------------------------------------------------------------------


def rabbitmq(folder: Path, text: str) -> Reading:
    said: dict[str, str] = {}
    for line in text.splitlines():
        line = re.sub(r"(^|\s)#.*$", "", line).strip()
        if line:
            key, _, value = line.partition("=")
            said[key.strip()] = value.strip()
    guest_afar = said.get("loopback_users.guest") == "false" or said.get("loopback_users") == "none"
    anonymous = said.get("mqtt.allow_anonymous") == "true" and "default_user" not in said and guest_afar
    anonymous = anonymous and not any(key.startswith("auth_backends") or key == "unheard_of" for key in said)
    doors: list[Door] = []
    for key, value in said.items():
        match = re.fullmatch(r"(?:(mqtt|stomp)\.)?listeners\.(tcp|ssl)\.\w+", key)
        if match is None or said.get(key.rpartition(".")[0]) == "none":
            continue
        host, _, port = value.rpartition(":")
        usable = match[2] == "tcp" or (
            Path(said.get("ssl_options.certfile", "-")).exists()
            and (said.get("ssl_options.verify") != "verify_peer" or "ssl_options.cacertfile" in said)
        )
        if port.isdigit():
            doors.append(Door(_host(host), int(port), anonymous and match[1] == "mqtt", usable))
    limits = {}
    if "max_message_size" in said:
        limits["packet_max"] = int(said["max_message_size"])
    if said.get("connection_max", "infinity") != "infinity":
        limits["connections_max"] = int(said["connection_max"])
    limits["ack_age_ms"] = int(said.get("consumer_timeout", "1800000"))
    return Reading(doors, limits=limits)


# -- Redis ------------------------------------------------------------------------------------------------------------


def redis(folder: Path, text: str) -> Reading:
    lines = text.splitlines()
    limits = {"hard": 32 << 20, "soft": 8 << 20, "seconds": 60}
    while lines:
        words = lines.pop(0).split()
        name = words[0].lower() if words else "#"
        if name == "include" and (folder / words[1]).exists():
            lines[:0] = (folder / words[1]).read_text().splitlines()
        elif name == "maxclients":
            limits["connections_max"] = int(words[1])
        elif name == "client-output-buffer-limit":
            for at in range(1, len(words), 4):
                if words[at].lower() == "pubsub":
                    hard, soft = map(_redis_size, words[at + 1 : at + 3])
                    limits |= {"hard": hard, "soft": soft, "seconds": int(words[at + 3])}
    if not limits["soft"] or limits["soft"] >= limits["hard"] > 0:
        limits = {key: value for key, value in limits.items() if key not in ("soft", "seconds")}
    return Reading([], limits={key: value for key, value in limits.items() if value or key == "seconds"})


def _redis_size(text: str) -> int:
    match = re.fullmatch(r"(\d+)(k|m|g)?(b?)", text.lower())
    assert match is not None
    return int(match[1]) * (1024 if match[3] else 1000) ** (" kmg".index(match[2]) if match[2] else 0)


# -- qpidd ------------------------------------------------------------------------------------------------------------


def qpidd(folder: Path, text: str) -> Reading:
    said: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, equals, value = re.sub(r"(^|\s)#.*$", "", line).strip().partition("=")
        if equals:
            said.setdefault(key.strip(), []).append(value.strip())
    words = said.get("auth", ["yes"])
    known = {"port", "auth", "interface", "max-connections", "log-enable", "worker-threads", "data-dir"}
    free = all(word in ("no", "false", "0") for word in words) and set(said) <= known
    doors = [
        Door(_host(host), int(said["port"][0]), free)
        for host in said.get("interface", [""]) if "port" in said and not re.fullmatch(r"[a-z]+\d", host)
    ]  # fmt: skip
    limits = {"connections_max": int(said["max-connections"][-1])} if "max-connections" in said else {}
    return Reading(doors, limits=limits)


# -- XML --------------------------------------------------------------------------------------------------------------


def _local(node: ElementTree.Element) -> str:
    return node.tag.rpartition("}")[2]


def _find(root: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [node for node in root.iter() if isinstance(node.tag, str) and _local(node) == name]


QUIET = {"loggingBrokerPlugin", "statisticsBrokerPlugin", "timeStampingBrokerPlugin", "redeliveryPlugin"}


def activemq(folder: Path, text: str) -> Reading:
    root = ElementTree.fromstring(text)
    closed = any("plugins" in broker.attrib for broker in _find(root, "broker"))
    for plugins in _find(root, "plugins"):
        for plugin in plugins:
            anybody = _local(plugin) == "simpleAuthenticationPlugin" and plugin.get("anonymousAccessAllowed") == "true"
            closed |= _local(plugin) not in QUIET and not anybody
    doors: list[Door] = []
    for connector in _find(root, "transportConnector"):
        match = re.match(r"([a-z+]+)://(\[[^]]*\]|[^:?]*):(\d+)", connector.attrib["uri"])
        if match is None:
            continue
        spoken = match[1].partition("+")[0] in ("tcp", "nio", "mqtt", "stomp", "amqp", "ws", "auto")
        most = re.search(r"maximumConnections=(\d+)", connector.attrib["uri"])
        limits = (("connections_max", int(most[1])),) if most is not None else ()
        doors.append(Door(_host(match[2]), int(match[3]), not closed, spoken and "ssl" not in match[1], limits))
    return Reading(doors)


def amps(folder: Path, text: str) -> Reading:
    root = ElementTree.fromstring(text)
    modules = [node.findtext("Module") for name in ("Authentication", "Entitlement") for node in _find(root, name)]
    closed = bool(_find(root, "Include")) or any(
        one not in ("amps-default-authentication-module", "amps-default-entitlement-module") for one in modules
    )
    doors: list[Door] = []
    for one in _find(root, "Transport"):
        host, _, port = (one.findtext("InetAddr") or "").rpartition(":")
        usable = one.findtext("Type") != "tcps" or Path(one.findtext("Certificate") or "-").exists()
        doors.append(Door(_host(host), int(port), not closed, usable))
    limits: dict[str, int] = {}
    for node in root.findall("MessageMemoryLimit"):
        match = re.fullmatch(r"(\d+)(MB|MiB)", node.text or "")
        assert match is not None
        limits.setdefault("memory", int(match[1]) * (10**6 if match[2] == "MB" else 1 << 20))
    return Reading(doors, limits=limits)


def qpid(folder: Path, text: str) -> Reading:
    root = ElementTree.fromstring(text)
    doors: list[Door] = []
    for connector in _find(root, "connector"):
        alone = connector.findtext("ssl/sslOnly") == "true"
        doors += [
            Door(_host(connector.findtext("bind") or ""), int(port.text or "0"), open=False, there=not alone)
            for port in connector.findall("port")
        ]
    return Reading(doors)


ORACLES: Mapping[str, Callable[[Path, str], Reading]] = {
    "mosquitto": mosquitto, "nats": nats, "rabbitmq": rabbitmq, "redis": redis, "qpidd": qpidd, "activemq": activemq,
    "amps": amps, "qpid": qpid,
}  # fmt: skip
