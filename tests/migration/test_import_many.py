"""Two hundred files in the manner of public ones, from small grammars, mutated. What becomes of them is compared with a
second reading (``oracles.py``): access, ports, users and limits. A difference names the seed."""

from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from tests.migration.oracles import ORACLES, Reading
from tests.server.canned import Ran

from headway.migration import import_files
from headway.server.config import Settings, bad_certificates, parse_settings

OF_EACH = 25
HOSTS = ("", "127.0.0.1", "10.0.0.5", "192.168.7.1", "::1", "::", "fd00::7")
HASH = "$7$101$c2FsdHNhbHQ=$" + "A" * 86 + "=="

OF_LISTENERS = ("packet_max", "connections_max", "in_flight_max")

Grammar = Callable[[random.Random, Path], str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with certificates and users, as the files of the grammars name them."""
    folder = tmp_path_factory.mktemp("many")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout",
         folder / "k.pem", "-out", folder / "c.pem", "-days", "2", "-subj", "/CN=localhost"],
        check=True, capture_output=True,
    )  # fmt: skip
    for name, users in (("users", ("alice", "bob")), ("others", ("carol",))):
        (folder / name).write_text("".join(f"{user}:{HASH}\n" for user in users))
    (folder / "conf.d").mkdir()
    (folder / "conf.d" / "10.conf").write_text("allow_anonymous false\nlistener 1899 127.0.0.1\n")
    (folder / "auth.conf").write_text("authorization {\n  user: a\n  password: b\n}\n")
    (folder / "ports.conf").write_text("max_payload: 64kb\nmqtt {\n  port: 1890\n}\n")
    (folder / "more.conf").write_text("MaxClients 77\n")
    return folder


def maybe(draw: random.Random, *lines: str, share: float = 0.4) -> list[str]:
    return [draw.choice(lines)] if draw.random() < share else []


# -- grammars ---------------------------------------------------------------------------------------------------------


def mosquitto(draw: random.Random, folder: Path) -> str:
    lines = ["pid_file /run/m.pid", *maybe(draw, "per_listener_settings true", "per_listener_settings false")]
    lines += maybe(draw, "allow_anonymous true", "allow_anonymous false", share=0.6)
    lines += maybe(draw, f"password_file {folder}/users", "password_file /none/users")
    lines += maybe(draw, "acl_file /etc/acl", "plugin /usr/lib/x.so", "frobnicate 7", share=0.1)
    lines += maybe(draw, "port 1883", "bind_address 127.0.0.1", share=0.2)
    lines += maybe(draw, "max_queued_messages 500", "max_queued_messages 0", "max_packet_size 2000")
    lines += maybe(draw, "message_size_limit 5000", "max_inflight_messages 30", "persistence false")
    for port in draw.sample(range(1884, 1890), draw.randint(0, 3)):
        lines.append(f"listener {port} {draw.choice(HOSTS)}".rstrip())
        lines += maybe(draw, "protocol websockets", "protocol mqtt", "protocol http_api")
        lines += maybe(draw, "max_connections 50", "max_connections -1")
        lines += maybe(draw, "allow_anonymous true", "allow_anonymous 0", "listener_allow_anonymous true")
        lines += maybe(draw, f"password_file {folder}/users", f"password_file {folder}/others", share=0.2)
        if draw.random() < 0.3:
            lines += [f"certfile {draw.choice((str(folder), '/none'))}/c.pem", f"keyfile {folder}/k.pem"]
            lines += maybe(draw, f"cafile {folder}/c.pem", share=0.7)
            lines += maybe(draw, "require_certificate true", "require_certificate false")
    return "\n".join(lines + maybe(draw, "include_dir conf.d", "include_dir none.d", share=0.2)) + "\n"


def nats(draw: random.Random, folder: Path) -> str:
    lines = ["server_name: n1", *maybe(draw, "max_payload: 8m", "max_payload: 2mb", "max_payload = 70KB")]
    lines += maybe(draw, "max_pending: 64m", "max_pending 64MiB", "max_connections: 10k", "max_conn: 500")
    lines += maybe(draw, "authorization {\n  token: t\n}", "accounts {\n  A {\n    users: x\n  }\n}", share=0.15)
    lines += maybe(draw, "include auth.conf", "include ports.conf", "include none.conf", share=0.2)
    for port in draw.sample(range(1891, 1899), draw.randint(1, 2)):
        inner = [f"port: {port}", *maybe(draw, 'host: "127.0.0.1"', "net: '::'", 'host: "10.0.0.5"')]
        if draw.random() < 0.3:
            inner = [f'listen: "{draw.choice(("127.0.0.1", "0.0.0.0", "[::1]"))}:{port}"']
        elif draw.random() < 0.3:
            lines.append(f"PORT_{port}: {port}")
            inner[0] = f"port: $PORT_{port}"
        inner += maybe(draw, "max_ack_pending: 100", "no_auth_user: a", "authorization {\n user: a\n }", share=0.2)
        name = draw.choice(("mqtt", "mqtt", "websocket"))
        inner += maybe(draw, "no_tls: true", share=0.8) if name == "websocket" else []
        lines.append("\n".join([f"{name} {{", *(f"  {one}" for one in inner), "}"]))
    return "\n".join(lines) + "\n"


def rabbitmq(draw: random.Random, folder: Path) -> str:
    lines = maybe(draw, "consumer_timeout = 900000", "max_message_size = 16000", "connection_max = 300")
    for port in draw.sample(range(5672, 5680), draw.randint(1, 3)):
        kind = draw.choice(("listeners.tcp", "mqtt.listeners.tcp", "stomp.listeners.tcp"))
        host = draw.choice(HOSTS)
        lines.append(f"{kind}.p{port} = {host}:{port}" if host else f"{kind}.p{port} = {port}")
    lines += maybe(draw, "listeners.tcp = none", "mqtt.listeners.tcp = none", share=0.2)
    lines += maybe(draw, "mqtt.allow_anonymous = true", "mqtt.allow_anonymous = false", share=0.7)
    lines += maybe(draw, "loopback_users.guest = false", "loopback_users = none", share=0.6)
    lines += maybe(draw, "default_user = admin", "auth_backends.1 = ldap", "unheard_of = 1", share=0.2)
    if draw.random() < 0.4:
        lines += ["listeners.ssl.default = 5671", f"ssl_options.certfile = {folder}/c.pem"]
        lines += [f"ssl_options.keyfile = {folder}/k.pem", f"ssl_options.cacertfile = {folder}/c.pem"]
        lines += maybe(draw, "ssl_options.verify = verify_none", "ssl_options.verify = verify_peer", share=0.8)
    return "\n".join(lines) + "\n"


def redis(draw: random.Random, folder: Path) -> str:
    buffers = "client-output-buffer-limit"
    lines = ["maxmemory 100mb", *maybe(draw, "maxclients 100", "MAXCLIENTS 2000", share=0.7)]
    lines += maybe(draw, f"{buffers} pubsub 64mb 16mb 90", f"{buffers} normal 0 0 0 pubsub 1gb 5m 10", share=0.7)
    lines += maybe(draw, f"{buffers} replica 256mb 64mb 60", f"{buffers} PubSub 7k 0 0", "requirepass x")
    return "\n".join(lines + maybe(draw, "include more.conf", share=0.2)) + "\n"


def qpidd(draw: random.Random, folder: Path) -> str:
    lines = ["port=5672", "worker-threads=4", *maybe(draw, "auth=no", "auth=yes", share=0.8)]
    lines += maybe(draw, "max-connections=40", "data-dir=/var/lib/qpidd")
    lines += maybe(draw, "acl-file=/etc/acl", "require-encryption=yes", share=0.2)
    for host in draw.sample(("127.0.0.1", "10.0.0.5", "::1", "eth0"), draw.randint(0, 2)):
        lines.append(f"interface={host}")
    return "\n".join(lines) + "\n"


def activemq(draw: random.Random, folder: Path) -> str:
    connectors = ""
    for number, port in enumerate(draw.sample(range(61610, 61620), draw.randint(1, 3))):
        scheme = draw.choice(("tcp", "nio", "mqtt", "stomp", "amqp", "ws", "ssl", "http"))
        host = draw.choice(("0.0.0.0", "localhost", "[::]", "10.0.0.5"))
        more = draw.choice(("", "?maximumConnections=9"))
        connectors += f' <transportConnector name="t{number}" uri="{scheme}://{host}:{port}{more}"/>\n'
    plugins = draw.choice((
        "", "", " <plugins><loggingBrokerPlugin/></plugins>\n", ' <plugins><bean class="x.Y"/></plugins>\n',
        ' <plugins><simpleAuthenticationPlugin anonymousAccessAllowed="true"/></plugins>\n',
        ' <plugins><jaasAuthenticationPlugin configuration="a"/></plugins>\n',
        " <plugins>\n  <simpleAuthenticationPlugin/>\n  <statisticsBrokerPlugin/></plugins>\n",
    ))  # fmt: skip
    some = draw.choice(("", "", ' plugins="#mine"')) if not plugins else ""
    namespace = 'xmlns="http://activemq.apache.org/schema/core"'
    return f'<broker {namespace} brokerName="b"{some}>\n{plugins}{connectors}</broker>\n'


def amps(draw: random.Random, folder: Path) -> str:
    inner = draw.choice(("", "  <MessageMemoryLimit>20MB</MessageMemoryLimit>\n"))
    inner += draw.choice(("", "", "  <Include>more.xml</Include>\n")) if draw.random() < 0.3 else ""
    transports = ""
    for number, port in enumerate(draw.sample(range(9000, 9010), draw.randint(1, 3))):
        host = draw.choice(("", "127.0.0.1:", "10.0.0.5:"))
        login = draw.choice(("", "", "amps-default-authentication-module", "ldap")) if draw.random() < 0.4 else ""
        more = f"<Authentication><Module>{login}</Module></Authentication>" if login else ""
        kind = draw.choice(("tcp", "tcp", "tcps"))
        if kind == "tcps":
            more += f"<Certificate>{folder}/c.pem</Certificate><PrivateKey>{folder}/k.pem</PrivateKey>"
            more += draw.choice(("", f"<CAFile>{folder}/c.pem</CAFile>"))
        transports += (
            f"  <Transport><Name>t{number}</Name><Type>{kind}</Type><InetAddr>{host}{port}</InetAddr>"
            f"<Protocol>amps</Protocol>{more}</Transport>\n"
        )
    return f"<AMPSConfig>\n  <Name>a</Name>\n{inner} <Transports>\n{transports} </Transports>\n</AMPSConfig>\n"


def qpid(draw: random.Random, folder: Path) -> str:
    ports = "".join(f"  <port>{port}</port>\n" for port in draw.sample(range(5672, 5680), draw.randint(1, 2)))
    bind = draw.choice(("", "  <bind>10.0.0.5</bind>\n", "  <bind>127.0.0.1</bind>\n"))
    tls = draw.choice(("", "  <ssl><enabled>true</enabled><sslOnly>true</sslOnly></ssl>\n"))
    auth = draw.choice(("", " <security><anonymous-auth-manager/></security>\n"))
    return f"<broker>\n <connector>\n{ports}{bind}{tls} </connector>\n{auth}</broker>\n"


GRAMMARS: Mapping[str, Grammar] = {
    "mosquitto": mosquitto, "nats": nats, "rabbitmq": rabbitmq, "redis": redis, "qpidd": qpidd, "activemq": activemq,
    "amps": amps, "qpid": qpid,
}  # fmt: skip
FILES = {"rabbitmq": "rabbitmq.conf", "activemq": "activemq.xml", "amps": "amps.xml", "qpid": "config.xml"}

# -- mutations --------------------------------------------------------------------------------------------------------

ONCE = re.compile(r"listener |PORT_|interface=|port=|include|.*[{}]|  ")
"""Lines that are not repeated: a port cannot be listened on twice, and half a block is no file."""


def mutated(draw: random.Random, kind: str, text: str) -> str:
    """Repeats lines, moves some, and changes what does not matter: comments, white space, the case of letters."""
    lines = text.splitlines()
    if kind in ("activemq", "amps", "qpid"):
        lines = [one for line in lines for one in (line, *maybe(draw, "<!-- <plugins/> -->", "", share=0.2))]
        return "\n".join(lines).replace("  ", draw.choice((" ", "\n  ", "  "))) + "\n"
    for _ in range(draw.randint(0, 3)):
        loose = [at for at, line in enumerate(lines) if not ONCE.match(line)]
        if loose:
            line = lines[draw.choice(loose)]
            if kind == "mosquitto" or "{" not in text:
                lines.insert(draw.randint(0, len(lines)), line)
            else:
                lines.append(line)
    lines = [re.sub(r"^(\w*allow_anonymous) (true|false)$", _other, line) if draw.random() < 0.2 else line
             for line in lines]  # fmt: skip
    out: list[str] = []
    for line in lines:
        out += maybe(draw, "# a comment", "", "#listener 1 2", share=0.3)
        if kind == "nats" and re.match(r"\s*[a-z_]+\s*[:={ ]", line) and draw.random() < 0.2:
            name = re.match(r"\s*[a-z_]+", line)
            assert name is not None
            line = (name[0].upper() if "include" not in line else name[0]) + line[name.end() :]
        if kind == "redis" and draw.random() < 0.3:
            line = line.replace("max", "MAX")
        out.append(line + draw.choice(("", "", "  ")))
    return draw.choice(("\n", "\r\n")).join(out) + "\n"


def _other(match: re.Match[str]) -> str:
    return f"{match[1]} {'true' if match[2] == 'false' else 'false'}"


# -- the comparison ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", GRAMMARS)
def test_what_is_imported_is_what_the_file_says(folder: Path, kind: str) -> None:
    seen_open = seen_closed = 0
    for seed in range(OF_EACH):
        draw = random.Random(f"{kind} {seed}")
        text = mutated(draw, kind, GRAMMARS[kind](draw, folder))
        path = folder / FILES.get(kind, f"{kind}.conf")
        path.write_bytes(text.encode())
        expected = ORACLES[kind](folder, text)
        settings = parse_settings(import_files([path], kind).text)
        assert bad_certificates(settings) == []
        if seed == 0:
            (folder / "headway.toml").write_text(settings.text)
            assert Ran("check", str(folder / "headway.toml")).code == 0
        shown = f"{kind}, seed {seed}:\n{text}\n{settings.text}"
        compare(expected, settings, shown)
        seen_open += any(door.open for door in expected.doors)
        seen_closed += any(not door.open for door in expected.doors)
    if kind != "redis":
        assert seen_closed
        assert seen_open or kind == "qpid", "the grammar makes both"


def compare(expected: Reading, settings: Settings, shown: str) -> None:
    users = settings.auth.checks_names
    doors = [door for door in expected.doors if door.there]
    ours = list(settings.listeners.values())
    assert set(settings.auth.users) == expected.users, shown
    if doors:
        assert {one.url.port for one in ours} == {door.port for door in doors}, shown
        let_in = {(one.url.host, one.url.port) for one in ours if one.allows_anonymous(users) and not one.url.loopback}
        wanted = {(door.host, door.port) for door in doors if door.open and not _loopback(door.host)}
        assert let_in == wanted, shown
        on_loopback = {one.url.port for one in ours if one.allows_anonymous(users) and one.url.loopback}
        assert not users or on_loopback <= {door.port for door in doors if door.open}, shown
        for door in doors:
            for one in ours:
                if one.url.port == door.port:
                    assert all(getattr(one, key) == most for key, most in door.limits), shown
    for key, most in expected.limits.items():
        if expected.doors and not doors and key in OF_LISTENERS:
            continue  # they are comments
        assert most in found(settings, key), f"{key} {most}: {shown}"


def _loopback(host: str) -> bool:
    return host in ("127.0.0.1", "::1", "localhost")


def found(settings: Settings, key: str) -> set[float]:
    """Returns the values that a limit has here."""
    text = settings.text
    match key:
        case "packet_max":
            return {one.packet_bytes_max for one in settings.listeners.values()}
        case "connections_max" | "in_flight_max":
            return {getattr(one, key) for one in settings.listeners.values()}
        case "memory":
            return {pool.memory_bytes for pool in settings.pools.values()}
        case "keep_records":
            return {int(one) for one in re.findall(r"keep_records = (\d+)", text)}
        case "ack_age_ms":
            return {_ms(*one) for one in re.findall(r'ack_age = "(\d+)(\w+)"', text)}
        case "seconds":
            return {_ms(*one) / 1000 for one in re.findall(r'for = "(\d+)(\w+)"', text)}
    return {_bytes(*one) for one in re.findall(r'lag_bytes = "(\d+)(\w+)"', text)}


def _ms(number: str, unit: str) -> float:
    return int(number) * {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}[unit]


def _bytes(number: str, unit: str) -> int:
    power = " kMG".index(unit[0].replace("K", "k")) if unit != "B" else 0
    return int(number) * (1024 if "i" in unit else 1000) ** power


def test_the_second_reading_is_one_of_its_own() -> None:
    assert "headway" not in {module.partition(".")[0] for module in vars_of_oracles()}


def vars_of_oracles() -> set[str]:
    """Returns the modules that the second reading imports."""
    text = (Path(__file__).parent / "oracles.py").read_text()
    return set(re.findall(r"^(?:from|import) ([\w.]+)", text, re.MULTILINE))
