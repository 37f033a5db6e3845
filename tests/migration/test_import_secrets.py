"""No secret of a foreign file is repeated: in the config, on stderr or in an error."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.migration.files import EVERYTHING
from tests.migration.imported import imported

from headway.cli.imports import _report
from headway.core.base import ConfigError
from headway.migration import ORIGINS
from headway.migration.formats import File, read_lines
from headway.migration.hiding import HIDDEN, hide, names_secret

PASSWORD = "Zq7vault"
"""Looks like a word: nothing but its place says that it is a secret."""
JWT = f"eyJhbGciOiJIUzI1NiJ9.eyJ{PASSWORD}.sig"
LONG = f"{PASSWORD}8kQ2xWn5TzR4mYc7LbH9dVf3JsGp6Xa1Ke"
FORMS = {
    "login": f"http://u:{PASSWORD}@h/x", "numeric-host": f"tcp://u:{PASSWORD}@127.0.0.1:7777",
    "bare-login": f"u:{PASSWORD}@h:1", "qpid": f"amqp:u/{PASSWORD}@h1,amqp:u/{PASSWORD}@h2",
    "parameter": f"ssl://0.0.0.0:7777?transport.keyStorePassword={PASSWORD}&x=1", "jdbc": f"jdbc:x?password={PASSWORD}",
    "pairs": f"user=u;password={PASSWORD};x=1", "words": f"auth-pass mymaster {PASSWORD}", "token": JWT, "key": LONG,
    "encoded": f"http://u:a@b/{PASSWORD}@h/x",
}  # fmt: skip
"""Values with a secret in them."""
SECRET_NAMES = (
    "password", "bridge_psk", "jwt_secret", "primaryauth", "masterauth", "keyStorePassword", "SecretKey", "api_key",
    "redis_pass", "oauth2.signing_keys.id1", "acl_token", "erlang_cookie", "credential", "searchpassword", "ldap.pwd",
    "passcode", "otp", "sig",
)  # fmt: skip
"""Names of settings whose whole value is a secret."""
OTHER_NAMES = (
    "password_file", "psk_file", "psk_hint", "certfile", "keyfile", "keyStore", "Topic Key", "routing_key", "auth",
    "auth_plugin", "max_connections", "ssl_options.keyfile", "bypass", "passive", "tls-key-file", "token_endpoint",
    "auth_mechanisms.1", "key", "default_user", "subscription", "compass_heading",
)  # fmt: skip
_XML_VALUE = re.compile(r'(?<=")[^"<>{}\n]+(?=")|(?<=>)[^<>\n]+(?=<)')
_VALUE = re.compile(r'(?<=[ =:]) *"?[^\s"{}]+"?$', re.MULTILINE)
NAMES = [
    (origin.name, name.replace("*", "x")) for origin in ORIGINS for option in origin.options for name in option.names
]


def everything_printed(folder: Path, name: str, text: str, kind: str) -> str:
    """What an import of a text prints and writes, or its error."""
    return of_files(folder, [(name, text)], kind)


def of_files(folder: Path, files: list[tuple[str, str]], kind: str = "") -> str:
    stderr = io.StringIO()
    try:
        found = imported(folder, *files, kind=kind)
    except ConfigError as error:
        return str(error)
    with contextlib.redirect_stderr(stderr):
        _report(found, None)
    return found.text + stderr.getvalue() + "".join(f"{one} {one.value}" for one in found.outcomes)


def written(kind: str, name: str, value: str) -> Iterator[str]:
    """Files of an origin that set one option."""
    around, _, last = name.rpartition(" ")
    quoted = value.replace("&", "&amp;").replace('"', "&quot;")
    if kind in ("activemq", "amps", "qpid"):
        if around == "uri":
            yield f'<broker><transportConnector uri="tcp://127.0.0.1:7777?{last}={quoted}"/></broker>'
        elif around:
            yield f'<broker><{around} {last}="{quoted}"/></broker>'
        else:
            yield f"<broker><{last}>{quoted}</{last}></broker>"
            yield f'<broker><{last} {last}="{quoted}" directory="{quoted}" limit="{quoted}" name="{quoted}"/></broker>'
    elif kind == "nats":
        *blocks, key = name.split(".")
        yield "".join(f"{one} {{ " for one in blocks) + f'{key}: "{value}"' + " }" * len(blocks)
    elif kind in ("rabbitmq", "qpidd", "xap"):
        yield f"{name} = {value}\n"
    else:
        yield f"{name} {value}\n"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", [origin.name for origin in ORIGINS])
def test_no_option_repeats_a_secret_within_its_value(tmp_path: Path, kind: str, form: str) -> None:
    names = [name for of, name in NAMES if of == kind]
    for text in (text for name in names for text in written(kind, name, FORMS[form])):
        printed = everything_printed(tmp_path, "file", text, kind)
        assert PASSWORD not in printed, f"{text}\n{printed}"


@pytest.mark.parametrize("kind", [origin.name for origin in ORIGINS])
def test_no_option_with_a_secret_name_repeats_its_value(tmp_path: Path, kind: str) -> None:
    own = [name for of, name in NAMES if of == kind and names_secret(name, PASSWORD)]
    prefix = "com.gs.x." if kind == "xap" else ""
    for text in (text for name in (*own, *SECRET_NAMES) for text in written(kind, prefix + name, PASSWORD)):
        printed = everything_printed(tmp_path, "file", text, kind)
        assert PASSWORD not in printed.replace(f"{PASSWORD}-", ""), f"{text}\n{printed}"


@pytest.mark.parametrize("form", ["login", "bare-login", "parameter", "words", "token"])
@pytest.mark.parametrize("name", EVERYTHING)
def test_no_value_of_a_whole_file_repeats_a_secret_in_its_place(tmp_path: Path, name: str, form: str) -> None:
    """Each value of the files with everything gives way to one with a secret, so that every reader meets it."""
    for at, (path, text) in enumerate(EVERYTHING[name]):
        inserted = FORMS[form].replace("&", "&amp;") if text.startswith("<") else FORMS[form]
        for match in (_XML_VALUE if text.startswith("<") else _VALUE).finditer(text):
            value = f'"{inserted}"' if match[0].strip().startswith('"') or name == "nats" else inserted
            changed = f"{text[: match.start()]}{value}{text[match.end() :]}"
            files = [*EVERYTHING[name][:at], (path, changed), *EVERYTHING[name][at + 1 :]]
            printed = of_files(tmp_path, files, name)
            assert PASSWORD not in printed, f"{match[0]}\n{printed}"


@pytest.mark.parametrize(
    ("kind", "text", "stays"),
    [
        ("mosquitto", f"listener 1883\nauth_opt_http_uri http://u:{PASSWORD}@h/x\n", "http://u:***@h/x"),
        ("mosquitto", f"listener 1883\nauth_opt_dsn postgres://root:{PASSWORD}@h/db\n", "postgres://root:***@h/db"),
        ("mosquitto", "listener 1883\npassword_file /none/passwd\n", "/none/passwd"),
        ("mosquitto", f"listener 1883\nbridge_psk {PASSWORD}\n", "bridge_psk = ***"),
        ("mosquitto", f"listener 1883\npassword={PASSWORD}\n", "password=***"),
        ("redis", f"sentinel auth-pass mymaster {PASSWORD}\n", "auth-pass ***"),
        ("redis", f"user bob on >{PASSWORD} ~* +@all\n", "user = ***"),
        ("redis", f"rename-command CONFIG {PASSWORD}\n", "rename-command = ***"),
        ("redis", "requirepass x\n", "requirepass = ***"),
        ("redis", "tls-key-file /etc/redis.key\n", "/etc/redis.key"),
        ("qpidd", f"ha-brokers-url=amqp:u/{PASSWORD}@h1,amqp:u/{PASSWORD}@h2\n", "amqp:u/***@h1,amqp:u/***@h2"),
        ("rabbitmq", f"oauth2.signing_keys.id1 = {PASSWORD}\n", "oauth2.signing_keys.id1 = ***"),
        ("rabbitmq", f"default_pass {PASSWORD}\n", "is not a setting: 'default_pass ***'"),
        ("nats", f'max_pending: 1MB\nX = "{PASSWORD}"\nauthorization {{ token: $X }}\n', "max_pending"),
        ("amps", f"<AMPSConfig><Transport><InetAddr>u:{PASSWORD}@h:1</InetAddr></Transport></AMPSConfig>", "u:***@h:1"),
        ("amps", "<AMPSConfig><SOW><Topic><Name>x</Name><Key>/id</Key></Topic></SOW></AMPSConfig>", '"/id"'),
        ("activemq", f'<broker><transportConnector uri="tcp://u:{PASSWORD}@0.0.0.0:61616"/></broker>', "tcp://u:***@0"),
        ("activemq", '<broker><transportConnector uri="tcp://u:7654321@0.0.0.0:61616"/></broker>', "tcp://u:***@0"),
        ("activemq", f'<b><journaledJDBC dataSource="jdbc:x?password={PASSWORD}"/></b>', '"jdbc:x?password=***"'),
    ],
)  # fmt: skip
def test_a_secret_is_hidden_and_the_rest_of_its_line_stays(tmp_path: Path, kind: str, text: str, stays: str) -> None:
    printed = everything_printed(tmp_path, "file", text, kind)
    assert PASSWORD not in printed
    assert "7654321" not in printed
    assert stays in printed, printed


@pytest.mark.parametrize(
    ("kind", "text", "shown"),
    [
        ("nats", f'jetstream {{ store_dir: "/d", key: "{PASSWORD}" }}', ["/d", HIDDEN]),
        ("nats", f'cluster {{ x: ["nats-route://u:{PASSWORD}@h", "nats://{PASSWORD}@h"] }}',
         ["nats-route://u:***@h", "nats://***@h"]),
        ("nats", f'leafnodes {{ credentials: "/etc/leaf.creds", nkey: "{PASSWORD}" }}', ["/etc/leaf.creds", HIDDEN]),
        ("nats", f'p = "{PASSWORD}"\nauthorization {{ token: $p }}', [HIDDEN, HIDDEN]),
        ("activemq", f'<property name="password" value="{PASSWORD}"/>', ["password", HIDDEN]),
        ("activemq", f'<property name="password">{PASSWORD}</property>', [HIDDEN, "password"]),
        ("activemq", f"<entry key='password'><value>{PASSWORD}</value></entry>", ["password", HIDDEN]),
        ("rabbitmq", f'{{"p": [{{"name": "cluster_secret", "value": "{PASSWORD}"}}]}}', ["cluster_secret", HIDDEN]),
        ("rabbitmq", f'{{"p": [{{"name": "s", "value": {{"src-uri": "amqp://u:{PASSWORD}@h"}}}}]}}',
         ["s", "amqp://u:***@h"]),
        ("rabbitmq", f'{{"users": [{{"name": "u", "password_hash": "{PASSWORD}"}}]}}', ["u", HIDDEN]),
    ],
)  # fmt: skip
def test_a_setting_within_others_is_judged_with_them(tmp_path: Path, kind: str, text: str, shown: list[str]) -> None:
    origin = next(one for one in ORIGINS if one.name == kind)
    root = origin.parse(File("f", tmp_path / "f", text.encode()))
    assert [node.shown for node in root.walk() if node.text] == shown


def test_names_say_whether_a_value_is_a_secret() -> None:
    assert [name for name in SECRET_NAMES if not names_secret(name, PASSWORD)] == []
    assert [name for name in OTHER_NAMES if names_secret(name, "x")] == []
    assert not names_secret("credentials", "/etc/x.creds")
    assert not names_secret("needClientAuth", "true")
    assert names_secret("password", "/etc/x.pem"), "a password may look like anything"


@pytest.mark.parametrize(
    "text",
    ["http://h:80/a?b=c", "tcp://0.0.0.0:61616", "failover:(tcp://a:1,tcp://b:2)?randomize=true", "prices/token/#",
     "/etc/ssl/private/server.key", "pubsub 32mb 8mb 60", "mymaster 127.0.0.1 6379 2", "bob@example.com", "# both 1",
     "org.apache.activemq.broker.BrokerFactory", "0.0.0.0:1883", "^orders\\..*$", "https://a.example.com"],
)  # fmt: skip
def test_a_value_without_a_secret_stays_as_it_is(text: str) -> None:
    assert hide(text) == text


def test_an_address_keeps_all_but_its_password() -> None:
    assert hide(f"failover:(ssl://u:{PASSWORD}@a:1,ssl://b:2)?x=1") == "failover:(ssl://u:***@a:1,ssl://b:2)?x=1"
    assert hide(f"tcp://a:1,amqp://u:{PASSWORD}@b/%2f") == "tcp://a:1,amqp://u:***@b/%2f"


def test_forms_of_keys_are_hidden_wherever_they_stand() -> None:
    pem = "-----BEGIN PRIVATE KEY-----\nMIIEvQ\n-----END PRIVATE KEY-----"
    known = ("$2a$11$abcdefghij", "{SSHA}abcdef=", "5e884898da28047151d0e56f8dc6292773")
    for text in (pem, JWT, LONG, f"Authorization: Basic {PASSWORD}==", f"Bearer {PASSWORD}.x", *known):
        assert HIDDEN in hide(text), text
        assert PASSWORD not in hide(text)


def test_a_value_of_any_length_is_shown_in_time_and_cut(tmp_path: Path) -> None:
    for char in ("a", "a:", "a=", "a@", "://", '"', "<", " a", "eyJ", "a1B"):
        (node,) = read_lines(File("f", tmp_path, f"x {char * 500_000}\n".encode()), spaces=True).children
        assert len(node.shown) <= 4000
