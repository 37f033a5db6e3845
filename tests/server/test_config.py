"""The config: what it means, and what each mistake in it says."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.base.errors import ConfigError
from headway.core.policy.action import ActionKind
from headway.server.config import host_limits
from headway.server.config.auth import digest_of
from headway.server.config.description import describe, remarks
from headway.server.config.fields import Url, parse_url
from headway.server.config.reading import default_text, load_settings, parse_settings
from headway.server.config.settings import (
    FileTables,
    FlapTable,
    HistoryTable,
    JournalTable,
    ListenerTable,
    PoolTable,
    RetainedTable,
    ServerTable,
    Settings,
    SourceTable,
    TelemetryTable,
    TopicTable,
    ViewTable,
)
from headway.store.toml import BadConfig

MQTT = '[listeners.mqtt]\nurl = "mqtt://127.0.0.1:1883"\n'
HASH = "$scrypt$ln=15,r=8,p=1$Inpeda/VE2TJAGgWuw5KMg$LrHx2xusAfWmfVJXLx32zd+DQqTf2uQnEJujgcJ7xDU"


def mistakes(text: str) -> list[str]:
    with pytest.raises(BadConfig) as caught:
        parse_settings(text)
    assert caught.value.lines == str(caught.value).splitlines()
    return caught.value.lines


def without_text(settings: Settings) -> Settings:
    return dataclasses.replace(settings, text="")


# -- what is left out --------------------------------------------------------------------------------------------------


def test_the_default_file_says_what_the_tables_default_to() -> None:
    default = without_text(load_settings())
    assert without_text(parse_settings("")) == default
    assert without_text(parse_settings(MQTT + '[listeners.amqp]\nurl = "amqp://127.0.0.1:5672"\n')) == default


def test_the_default_file_names_every_key_there_is() -> None:
    text = default_text()
    for table in (
        ServerTable, ListenerTable, PoolTable, FlapTable, RetainedTable, TelemetryTable, JournalTable, HistoryTable,
        TopicTable, ViewTable, SourceTable,
    ):  # fmt: skip
        for name, field in table.model_fields.items():
            key = field.alias or name
            assert re.search(rf"^(# )?(\[.*)?{key}(\]| = )", text, re.MULTILINE) or f".{key}]" in text, key
    for section in FileTables.model_fields:
        assert f"[{section}" in text, section


def test_telemetry_is_off_until_its_table_is_there_and_one_key_turns_it_off() -> None:
    assert not parse_settings("").telemetry.enabled
    on = parse_settings('[telemetry]\npath = "~/lake"\n')
    assert on.telemetry.enabled
    assert on.telemetry.folder == Path.home() / "lake"
    assert "telemetry" in describe(on)
    off = parse_settings("[telemetry]\nenabled = false\n")
    assert not off.telemetry.enabled
    assert "telemetry" not in describe(off)


def test_what_is_said_of_telemetry_in_the_default_file_is_what_it_does() -> None:
    (block,) = re.findall(r"^# (\[telemetry\].*\n(?:# .*\n)+)", default_text(), re.MULTILINE)
    assert parse_settings(block.replace("\n# ", "\n")).telemetry == TelemetryTable()


def test_the_policies_in_force_are_told_as_they_are_written_and_nothing_else_is() -> None:
    text = f'[auth.users]\nalice = "{HASH}"\n[[topic]]\nfilter = "a/#"\n'
    default = json.loads(parse_settings(text).policies_text)
    assert default["topic"] == [{"filter": "a/#"}]
    assert [policy["name"] for policy in default["policy"]] == ["default"]
    own = parse_settings(text + '[[policy]]\nname = "p"\n[[policy.rule]]\nwhen = { lag_age = "1s" }\nthen = "notify"\n')
    assert json.loads(own.policies_text)["policy"] == [
        {"name": "p", "rule": [{"when": {"lag_age": "1s"}, "then": "notify"}]}
    ]
    assert "scrypt" not in own.policies_text
    assert "trial" not in json.loads(own.policies_text)


def test_trials_are_told_beside_the_policies_in_force() -> None:
    text = '[[trial]]\nname = "t"\n[[trial.rule]]\nwhen = { lag_age = "1s" }\nthen = "disconnect"\n'
    assert json.loads(parse_settings(text).policies_text)["trial"] == [
        {"name": "t", "rule": [{"when": {"lag_age": "1s"}, "then": "disconnect"}]}
    ]


def test_the_default_says_who_is_slow_and_cuts_who_is_beyond_doubt() -> None:
    settings = load_settings()
    assert settings.source is None
    assert settings.server.admin == Url("http", "127.0.0.1", 9883)
    assert {name: str(one.url) for name, one in settings.listeners.items()} == {
        "mqtt": "mqtt://127.0.0.1:1883", "amqp": "amqp://127.0.0.1:5672",
    }  # fmt: skip
    (policy,) = settings.policies
    assert policy.topics == ("#",)
    assert [(str(rule.when), rule.for_s, rule.then.kind) for rule in policy.rules] == [
        ("blocked_time > 7 s or (credit_exhausted_time > 10 s and lag_records > prefetch + 50)", 0.0,
         ActionKind.NOTIFY),
        ("lag_age > 10 s and lag_records > prefetch + 50 and "
         "((drain_share < 90 % and catching_up > 3 min) or catching_up > 10 min)", 5.0, ActionKind.NOTIFY),
        ("blocked_time > 5 min", 0.0, ActionKind.DISCONNECT),
    ]  # fmt: skip
    pool = settings.pools[""]
    assert pool.memory_bytes == int(host_limits.memory_bytes() * 0.1)
    assert pool.disk_bytes == max(1_000_000_000, pool.memory_bytes)
    assert pool.client_share == 0.5
    assert remarks(settings) == []


def test_a_file_with_listeners_or_policies_of_its_own_has_only_those() -> None:
    settings = parse_settings('[listeners.a]\nurl = "mqtt://127.0.0.1:1"\n[[policy]]\nname = "p"\n')
    assert list(settings.listeners) == ["a"]
    assert [policy.name for policy in settings.policies] == ["p"]
    assert parse_settings("policy = []").policies == ()
    assert "nobody is called slow" in remarks(parse_settings("policy = []"))[0]


# -- what is written ---------------------------------------------------------------------------------------------------


def test_everything_written_arrives_in_base_units() -> None:
    settings = parse_settings(
        f"""
        [server]
        name = "edge"
        admin = false
        send_buffer = "64KiB"
        read_size = 65536
        sweep = "100ms"
        late_after = "1s"
        stop_timeout = 0
        sessions_max = 7
        [listeners.door]
        url = "mqtt://[::1]"
        connections_max = "2_000"
        connect_timeout = "5s"
        packet_max = "64KiB"
        subscriptions_max = 3
        in_flight_max = 20
        keep_alive_max = "1h 30m"
        session_expiry_max = "1d"
        [listeners.door.pool]
        memory = "20MB"
        max_client_share = 0.25
        [auth.users]
        alice = "{HASH}"
        [pool]
        memory = "30MB"
        disk = "5GB"
        disk_path = "/spill"
        [flap]
        base = "2s"
        max = "1m"
        forgive = "2m"
        [retained]
        topics_max = 5
        bytes_max = "1MB"
        [[topic]]
        filter = "flights/#"
        key = "/tailnum"
        [[topic]]
        filter = "status/+"
        """
    )
    server, door = settings.server, settings.listeners["door"]
    assert (server.name, server.admin, server.send_buffer_bytes, server.read_bytes) == ("edge", None, 65536, 65536)
    assert (server.sweep_s, server.late_after_s, server.stop_timeout_s, server.sessions_max) == (0.1, 1.0, 0.0, 7)
    assert door.url == Url("mqtt", "::1", 1883)
    assert str(door.url) == "mqtt://[::1]:1883"
    assert (door.connections_max, door.connect_timeout_s, door.packet_bytes_max) == (2000, 5.0, 65536)
    assert (door.subscriptions_max, door.in_flight_max) == (3, 20)
    assert (door.keep_alive_max_s, door.session_expiry_max_s) == (5400.0, 86400.0)
    assert settings.auth.users == {"alice": HASH}
    shared, own = settings.pools[""], settings.pools["door"]
    assert (shared.memory_bytes, shared.disk_bytes, shared.disk_path) == (30_000_000, 5_000_000_000, Path("/spill"))
    assert (own.memory_bytes, own.disk_bytes, own.disk_path) == (20_000_000, 1_000_000_000, Path("/spill"))
    assert (shared.client_share, own.client_share) == (0.5, 0.25)
    assert (settings.flap.base_s, settings.flap.max_s, settings.flap.forgive_s) == (2.0, 60.0, 120.0)
    assert (settings.retained.topics_max, settings.retained.bytes_max) == (5, 1_000_000)
    assert [(topic.filter, topic.key.text) for topic in settings.topics] == [
        ("flights/#", "/tailnum"),
        ("status/+", "topic"),
    ]
    table = describe(settings)
    for word in ("mqtt://[::1]:1883", "none", "30 MB", "pool door", "/spill", "keyed by /tailnum", "policy default"):
        assert word in table


def test_the_policies_of_the_design() -> None:
    settings = parse_settings(
        """
        [[policy]]
        name = "market data"
        topics = ["stocks/us/#"]
        subscriptions = "transient"
        [[policy.rule]]
        when = { lag_age = "1s" }
        then = "conflate"
        [[policy.rule]]
        when = { drain_rate = "<5000B/s" }
        for = "500ms"
        retries = 3
        then = "disconnect"
        """
    )
    (policy,) = settings.policies
    assert [rule.then.kind for rule in policy.rules] == [ActionKind.CONFLATE, ActionKind.DISCONNECT]
    assert "lag_age > 1 s -> conflate; drain_rate < 5 kB/s for 500 ms -> disconnect" in describe(settings)


def test_a_memory_pool_that_is_larger_than_a_gigabyte_has_as_much_disk() -> None:
    assert parse_settings('[pool]\nmemory = "2MB"').pools[""].disk_bytes == 1_000_000_000
    table = PoolTable.model_validate({"memory": "3GB"})
    assert table.disk_bytes is None
    half = parse_settings('[pool]\nmemory = "50%"').pools[""]
    assert half.memory_bytes == int(host_limits.memory_bytes() * 0.5)
    assert half.disk_bytes == max(1_000_000_000, half.memory_bytes)


def test_no_disk_is_worth_a_remark() -> None:
    settings = parse_settings("[pool]\ndisk = 0")
    assert settings.pools[""].disk_bytes == 0
    assert "no disk" in remarks(settings)[0]


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "broker.toml"
    path.write_bytes(b'[server]\r\nname = "x"\r\n')
    settings = load_settings(path)
    assert (settings.server.name, settings.source) == ("x", path)
    path.write_bytes(b"name = '\xff'")
    for bad, says in ((path, "is not text in UTF-8"), (tmp_path, "is a directory"), (tmp_path / "no", "no such file")):
        with pytest.raises(BadConfig, match=says) as caught:
            load_settings(bad)
        assert str(caught.value).startswith(f"{bad}: ")
    path.write_text("[server]\nname = 3\nnme = 4\n")
    with pytest.raises(BadConfig) as caught:
        load_settings(str(path))
    assert [line.partition(": ")[0] for line in caught.value.lines] == [str(path)] * 2


# -- who may come in ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "loopback"),
    [
        ("127.0.0.1", True), ("127.9.9.9", True), ("localhost", True), ("[::1]", True), ("LOCALHOST", True),
        ("0.0.0.0", False), ("[::]", False), ("192.168.1.2", False), ("broker.example", False),
        ("localhost.example", False), ("127.0.0.1.example", False), ("[::ffff:10.0.0.1]", False),
    ],
)  # fmt: skip
def test_beyond_loopback_nobody_comes_in_without_a_name_unless_it_is_written(address: str, loopback: bool) -> None:
    listener = f'[listeners.x]\nurl = "mqtt://{address}:1883"\n'
    if loopback:
        assert parse_settings(listener).listeners["x"].allows_anonymous(users=False)
    else:
        (line,) = mistakes(listener)
        assert "nobody would have to log in" in line
        assert "allow_anonymous = true" in line
    users = f'[auth.users]\na = "{HASH}"\n'
    assert not parse_settings(listener + users).listeners["x"].allows_anonymous(users=True)
    written = parse_settings(listener + "allow_anonymous = true")
    assert written.listeners["x"].allows_anonymous(users=False)
    assert written.listeners["x"].allows_anonymous(users=True)
    assert any("without a name" in line for line in remarks(written)) is not loopback
    forbidden = parse_settings(listener + "allow_anonymous = false\n" + users).listeners["x"]
    assert not forbidden.allows_anonymous(users=True)


def test_the_admin_api_is_on_loopback_only() -> None:
    (line,) = mistakes('[server]\nadmin = "http://0.0.0.0:9883"')
    assert line.startswith("server.admin: ")
    assert "loopback" in line


@pytest.mark.parametrize(
    ("one", "other", "clash"),
    [
        ("127.0.0.1:5", "127.0.0.1:5", True),
        ("127.0.0.1:5", "localhost:5", True),
        ("127.0.0.1:5", "127.0.0.1:6", False),
        ("127.0.0.1:5", "127.0.0.2:5", False),
        ("127.0.0.1:5", "[::1]:5", False),
        ("localhost:5", "[::1]:5", True),
        ("127.0.0.1:0", "127.0.0.1:0", False),
        ("0.0.0.0:5", "127.0.0.1:5", True),
        ("127.0.0.1:9883", "127.0.0.1:5", True),
    ],
)
def test_two_listeners_cannot_have_one_address(one: str, other: str, clash: bool) -> None:
    text = "".join(
        f'[listeners.{name}]\nurl = "mqtt://{url}"\nallow_anonymous = true\n'
        for name, url in (("a", one), ("b", other))
    )
    if clash:
        (line,) = mistakes(text)
        assert "is taken by" in line
    else:
        assert len(parse_settings(text).listeners) == 2


# -- mistakes ----------------------------------------------------------------------------------------------------------

MISTAKES = [
    ("x = ", "is not TOML: "),
    ("[[[", "is not TOML: "),
    ("[servr]", "servr: unknown section (did you mean server?)"),
    ("[jornal]\npath = 'x'", "jornal: unknown section (did you mean journal?)"),
    ("[journal]\nfsync = 'never'", 'journal.fsync: "never" is not "always", "off", or a time from "1ms" to "1s"'),
    ("[journal]\nfsync = '2s'", 'journal.fsync: "2s" is not "always"'),
    ("[journal]\nsegment = '1KB'", 'journal.segment: "1KB" is too little: from 100 kB to '),
    ("[journal]\n[[topic]]\nfilter = 'a'\nkeep = 'long'", 'topic[1].keep: "long" is neither a time such as "7d" nor'),
    ("[journal]\n[pool]\ndisk = 0", "pool.disk: 0, and the journal needs disk"),
    ("[[topic]]\nfilter = 'a'\nkeep = '7d'", "topic[1].keep: records are kept in the journal, and there is none"),
    ("[telemetry]\npath = ''", 'telemetry.path: expected text, not ""'),
    ("[telemetry]\ndisk = '999kB'", 'telemetry.disk: "999kB" is too little: from 1 MB'),
    ("[telemetry]\nevery = '0.5s'", 'telemetry.every: "0.5s" is too little: from 1 s'),
    ("[telemetry]\nsample = '20s'", "telemetry.sample: 20 s is more than telemetry.idle, 10 s"),
    ("[telemetry]\nfolder = 'x'", "telemetry.folder: unknown key (known: enabled, path, disk, every, sample, idle)"),
    ("telemetry = true", "telemetry: expected a table, [telemetry], not true"),
    ("[listners.x]", "listners: unknown section (did you mean listeners?)"),
    ("[server]\nsend_bufer = 1", "server.send_bufer: unknown key (did you mean send_buffer?)"),
    ("[server]\nsend_buffer_bytes = 5000", "server.send_buffer_bytes: unknown key (did you mean send_buffer?)"),
    ("[server]\nzzz = 1", "server.zzz: unknown key (known: name, admin, send_buffer, "),
    ("[server]\nname = 3", "server.name: expected text, not 3"),
    ("[server]\nname = ' '", 'server.name: expected text, not " "'),
    ('[server]\nname = "a\\u001bb"', "server.name: "),
    ("[server]\nsend_buffer = '1Mb'", "server.send_buffer: \"1Mb\": unknown unit 'Mb' (did you mean MB?)"),
    ("[server]\nsend_buffer = '1kB'", 'server.send_buffer: "1kB" is too little: from 4 kB to 64 MB'),
    ("[server]\nsend_buffer = '1GB'", 'server.send_buffer: "1GB" is too much: from 4 kB to 64 MB'),
    ("[server]\nsend_buffer = true", "server.send_buffer: true is not a size"),
    ("[server]\nsweep = '200'", 'server.sweep: "200" is not a duration'),
    ("[server]\nsweep = nan", "server.sweep: nan is not a duration"),
    ("[server]\nsweep = 1979-05-27", "server.sweep: 1979-05-27 is not a duration"),
    ("[server]\nadmin = true", "server.admin: expected a URL such as"),
    ("[server]\nadmin = 'ftp://127.0.0.1'", "server.admin: \"ftp://127.0.0.1\": unknown protocol 'ftp' (known: http)"),
    ("server = 1", "server: expected a table, [server], not 1"),
    ("listeners = 3", "listeners: expected a table, [listeners], not 3"),
    ("listeners = {}", "listeners: there is none, so nobody could connect"),
    ("[[listeners]]", "listeners: expected a table, [listeners], not a list"),
    ("[listeners.a]", "listeners.a.url: is missing"),
    ("[listeners]\na = 'mqtt://127.0.0.1'", 'listeners.a: expected a table, [listeners.a], not "mqtt://127.0.0.1"'),
    ("[listeners.'b c']\nurl = 3", 'listeners."b c".url: 3 is not a URL such as "mqtt://127.0.0.1:1883"'),
    ("[listeners.a]\nurl = '127.0.0.1:1883'", "listeners.a.url: "),
    ("[listeners.a]\nurl = 'mqtt://'", "the host is missing"),
    ("[listeners.a]\nurl = 'mqtt://127.0.0.1:99999'", "port out of range"),
    ("[listeners.a]\nurl = 'mqtt://127.0.0.1:x'", "port could not be cast"),
    ("[listeners.a]\nurl = 'mqtt://u:p@127.0.0.1/'", "there is nothing but a host and a port in it"),
    ("[listeners.a]\nurl = 'stomp://127.0.0.1'", "unknown protocol 'stomp' (known: mqtt, amqp"),
    (MQTT + "allow_anonymous = 'yes'", 'listeners.mqtt.allow_anonymous: expected true or false, not "yes"'),
    (MQTT + "allow_anonymous = false", "listeners.mqtt.allow_anonymous: false, and there are no [auth.users]"),
    ("[auth.admin]\nread = ['eve']", 'auth.admin.read: "eve" is neither in [auth.users] nor in [auth.tokens]'),
    ("[auth.admin]\nchange = ['eve']", 'auth.admin.change: "eve" is neither in [auth.users] nor in [auth.tokens]'),
    ("[auth.tokens]\na = 'secret'", "auth.tokens.a: is not a token's digest: make one with `headway passwd --token"),
    (f"[auth.tokens]\na = '{digest_of('x')}'\n[auth.users]\na = '{HASH}'", "auth.tokens.a: is the name of a user"),
    (MQTT + "in_flight_max = 70000", "listeners.mqtt.in_flight_max: 70000 is too much: from 1 to 65,535"),
    (MQTT + "connections_max = 1.5", "listeners.mqtt.connections_max: 1.5 is not a whole number"),
    (MQTT + "packet_max = '300MB'", 'listeners.mqtt.packet_max: "300MB" is too much'),
    (MQTT + "[listeners.mqtt.pool]\nmemry = 1", "listeners.mqtt.pool.memry: unknown key (did you mean memory?)"),
    (MQTT + "[listeners.mqtt.pool]\nmemory = '1kB'", "listeners.mqtt.pool.memory: 1 kB is too little: at least"),
    (
        MQTT + "packet_max = '6MB'\n[pool]\nmemory = '10MB'",
        "listeners.mqtt.packet_max: 6 MB is more than one client may",
    ),
    ("[pool]\nmemory = '0.5%%'", 'pool.memory: "0.5%%" is not a share'),
    ("[pool]\nmemory = 'lots {x}'", 'pool.memory: "lots {x}" is not a size'),
    ("[pool]\nmemory = '101%'", 'pool.memory: "101%" is not a share'),
    ("[pool]\nmemory = '0%'", 'pool.memory: "0%" is too little'),
    ("[pool]\nmemory = '1000TB'", "pool.memory: 1000 TB is more than the memory there is"),
    ("[pool]\nmemory = '60%'\n" + MQTT + "[listeners.mqtt.pool]\nmemory = '60%'", "pool.memory: all pools together, "),
    ("[pool]\nmax_client_share = '150%'", 'pool.max_client_share: "150%" is not a share'),
    ("[pool]\nmax_client_share = 0", "pool.max_client_share: 0 is too little: more than 0 %, up to 100 %"),
    ("[pool]\ndisk = '10%'", 'pool.disk: "10%" is not a size'),
    ("[flap]\nbase = '1h'", "flap.base: 1 h is more than flap.max, 5 min"),
    ("[flap]\nmax = '1h'", "flap.forgive: 10 min is less than flap.max, 1 h"),
    ("[retained]\nbytes_max = '1000TB'", "retained.bytes_max: 1000 TB is more than the memory there is"),
    ("[auth]\nuser = 3", "auth.user: unknown key (did you mean users?)"),
    ("[auth.users]\na = 'secret'", "auth.users.a: is not a scrypt hash: make one with `headway passwd`"),
    ("[auth.users]\n'' = 'secret'", 'auth.users."": expected text, not ""'),
    ("topic = 3", "topic: expected tables in double brackets, [[topic]], not 3"),
    ("[topic]\nfilter = 'a'", "topic: expected tables in double brackets, [[topic]], not a table"),
    ("[[topic]]", "topic[1].filter: is missing"),
    ("[[topic]]\nfilter = 'a/#/b'", "topic[1].filter: filter 'a/#/b': '#' must be the whole of the last level"),
    ("[[topic]]\nfilter = 'a'\nkey = 'tailnum'", "topic[1].key: key 'tailnum' is none of: a JSON pointer"),
    ("[[topic]]\nfilter = 'a'\n[[topic]]\nfilter = 'a'", 'topic[2].filter: "a" has a key already'),
    ("policy = 3", "policy: policies are written as [[policy]] tables, in double brackets"),
    ("[[policy]]", "policy[1]: a policy needs a name"),
    ("[[policy]]\nname = 'a'\n[[policy]]\nname = 'a'", "policy 'a' is defined twice"),
    ("[[policy]]\nname = 'a'\ntopics = ['b/#/c']", "policy 'a': topics[1]: filter 'b/#/c'"),
    (
        "[[policy]]\nname = 'a'\n[[policy.rule]]\nwhen = { lag_rekords = 3 }\nthen = 'notify'",
        "policy 'a', rule 1: unknown meter 'lag_rekords' (did you mean lag_records?)",
    ),
    (
        "[[policy]]\nname = 'a'\n[[policy.rule]]\nwhen = { lag_records = 3 }\n"
        "then = { action = 'discard', which = 'selector', selector = 'a = = b' }",
        "policy 'a', rule 1: then.selector, character 5: ",
    ),
]


@pytest.mark.parametrize(("text", "says"), MISTAKES, ids=[text.replace("\n", " ")[-50:] for text, _ in MISTAKES])
def test_every_mistake_is_one_clear_line(text: str, says: str) -> None:
    lines = mistakes(text)
    (line,) = [line for line in lines if says in line]
    assert lines == [line] or says.startswith('auth.users.""')
    assert "secret" not in "".join(lines)
    assert len(line) < 300


def test_all_mistakes_are_found_in_one_go() -> None:
    lines = mistakes(
        "[server]\nnme = 1\nsweep = 'x'\n[pool]\nmemory = 'x'\n"
        "[[policy]]\nnam = 'a'\n[[policy]]\nname = 'b'\n[[policy.rule]]\nthen = 'notify'\n[[policy]]\nname = 'c'\nx = 1"
    )
    assert [line.partition(": ")[0] for line in lines] == [
        "server.sweep", "server.nme", "pool.memory", "policy[1]", "policy 'b', rule 1", "policy 'c'",
    ]  # fmt: skip


def test_relations_are_looked_at_together_with_policies() -> None:
    lines = mistakes("[flap]\nbase = '1h'\n[[policy]]\nname = 'b'\nx = 1")
    assert [line.partition(": ")[0] for line in lines] == ["flap.base", "policy 'b'"]


def means_something_or_is_a_mistake(text: str) -> None:
    """Anything but settings or a BadConfig with lines fails the test."""
    try:
        outcome = describe(parse_settings(text)).splitlines()
    except BadConfig as error:
        outcome = error.lines
    assert outcome
    assert all(line.strip() for line in outcome)


SECTIONS = st.sampled_from([*FileTables.model_fields, "policy", "journal", "x"])
KEYS = st.sampled_from(
    [
        key
        for table in (ServerTable, ListenerTable, PoolTable, FlapTable, RetainedTable, TopicTable, ViewTable)
        for key in (field.alias or name for name, field in table.model_fields.items())
    ]
    + ["rule", "when", "then", "topics", "a"]
)
VALUES = st.sampled_from(
    ['"10%"', '"1MB"', '"30s"', '"x"', '"{0}"', "0", "-1", "1e400", "inf", "true", "[]", "{}", "[1]", "{ a = 1 }",
     '"mqtt://127.0.0.1:0"', "1979-05-27T07:32:00Z", "99999999999999999999999"]
)  # fmt: skip


@given(st.lists(st.tuples(SECTIONS, st.booleans(), st.dictionaries(KEYS, VALUES, max_size=4)), max_size=4))
def test_whatever_is_written_means_something_or_is_a_mistake(tables: list[tuple[str, bool, dict[str, str]]]) -> None:
    text = ""
    for section, many, entries in tables:
        text += f"[[{section}]]\n" if many else f"[{section}]\n"
        text += "".join(f"{key} = {value}\n" for key, value in entries.items())
    means_something_or_is_a_mistake(text)


@given(st.text())
def test_any_text_means_something_or_is_a_mistake(text: str) -> None:
    means_something_or_is_a_mistake(text)


@given(st.text())
def test_any_url_is_read_or_refused(text: str) -> None:
    try:
        url = parse_url(f"mqtt://{text}", "mqtt", 1883)
    except ConfigError:
        return
    assert parse_url(str(url), "mqtt", 1) == url


# -- the host ----------------------------------------------------------------------------------------------------------


def test_memory_limits_of_control_groups(tmp_path: Path) -> None:
    """Version 2: the lowest on the way up counts. Version 1: a number beyond all memory is none."""
    mine = tmp_path / "cgroup"
    assert host_limits.cgroup_bytes(tmp_path, mine) is None
    mine.write_text("0::/a/b\n")
    assert host_limits.cgroup_bytes(tmp_path, mine) is None
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "memory.max").write_text("max\n")
    assert host_limits.cgroup_bytes(tmp_path, mine) is None
    (tmp_path / "a" / "memory.max").write_text("500000000\n")
    assert host_limits.cgroup_bytes(tmp_path, mine) == 500_000_000
    (tmp_path / "a" / "b" / "memory.max").write_text("300000000\n")
    assert host_limits.cgroup_bytes(tmp_path, mine) == 300_000_000
    mine.write_text("5:cpu,memory:/x\n3:cpu:/a\n")
    (tmp_path / "memory" / "x").mkdir(parents=True)
    (tmp_path / "memory" / "x" / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert host_limits.cgroup_bytes(tmp_path, mine) is None
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("200000000\n")
    assert host_limits.cgroup_bytes(tmp_path, mine) == 200_000_000


def test_there_is_some_memory() -> None:
    assert 1_000_000 < host_limits.memory_bytes() < 1 << 60
