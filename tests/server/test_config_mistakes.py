"""Mistakes in the configuration: each is one clear line, and all are found in one go."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.server.configs import HASH, MQTT, mistakes

from headway.core.base.errors import ConfigError
from headway.server.config.auth import digest_of
from headway.server.config.description import describe
from headway.server.config.fields import parse_url
from headway.server.config.reading import parse_settings
from headway.server.config.settings import (
    FileTables,
    FlapTable,
    ListenerTable,
    PoolTable,
    RetainedTable,
    ServerTable,
    TopicTable,
    ViewTable,
)
from headway.store.toml import BadConfig

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
    (MQTT + '[[policy]]\nname = "p"\nlisteners = ["mqt"]', "policy 'p': listeners: unknown listener 'mqt' (did you"),
    (MQTT + '[[trial]]\nname = "t"\nlisteners = ["x"]', "unknown listener 'x' (known: mqtt, http)"),
    ("[listeners]\na = 'mqtt://127.0.0.1'", 'listeners.a: expected a table, [listeners.a], not "mqtt://127.0.0.1"'),
    ("[listeners.a]\nurl = 'mqtt://u:pw@127.0.0.1'", 'listeners.a.url: "mqtt://u:***@127.0.0.1" is not a URL such as'),
    ("[auth.hook]\nurl = 'http://u:pw@h/x'", 'auth.hook.url: "http://u:***@h/x" is not a URL such as'),
    ("[listeners.'b c']\nurl = 3", 'listeners."b c".url: 3 is not a URL such as "mqtt://127.0.0.1:1883"'),
    ("[listeners.a]\nurl = '127.0.0.1:1883'", "listeners.a.url: "),
    ("[listeners.a]\nurl = 'mqtt://'", "the host is missing"),
    ("[listeners.a]\nurl = 'mqtt://127.0.0.1:99999'", "port out of range"),
    ("[listeners.a]\nurl = 'mqtt://127.0.0.1:x'", "port could not be cast"),
    ("[listeners.a]\nurl = 'mqtt://u:p@127.0.0.1/'", "there is nothing but a host and a port in it"),
    ("[listeners.a]\nurl = 'mqtt://127.0.0.1'\ntrusted_proxies = ['::1']", "trusted_proxies: needs proxy_protocol"),
    ("[listeners.a]\nurl = 'ws://127.0.0.1'\ntrusted_proxies = ['10.0.0.1/8']", "is not an address or a network"),
    ("[listeners.a]\nurl = 'mqtt://127.0.0.1'\nproxy_protocol = 1", "listeners.a.proxy_protocol: "),
    ("[listeners.a]\nurl = 'ws://127.0.0.1/mqtt'", "there is nothing but a host and a port in it"),
    ("[listeners.a]\nurl = 'ws://127.0.0.1'\npath = 'mqtt'", 'listeners.a.path: "mqtt" is not the path of a URL'),
    ("[listeners.a]\nurl = 'ws://127.0.0.1'\npath = '/a?b'", 'listeners.a.path: "/a?b" is not the path of a URL'),
    ("[listeners.a]\nurl = 'mqtt://127.0.0.1'\npath = '/'", "listeners.a.path: is for WebSockets"),
    ("[listeners.a]\nurl = 'amqp://127.0.0.1'\norigins = ['*']", "listeners.a.origins: is for WebSockets"),
    ("[listeners.a]\nurl = 'ws://127.0.0.1'\norigins = ['app.example']", '"app.example" is not an origin'),
    ("[listeners.a]\nurl = 'ws://127.0.0.1'\norigins = ['https://a/']", '"https://a/" is not an origin'),
    ("[listeners.a]\nurl = 'ws://127.0.0.1'\norigins = '*'", "listeners.a.origins: "),
    ("[listeners.a]\nurl = 'gopher://127.0.0.1'", "unknown protocol 'gopher' (known: mqtt, amqp"),
    (MQTT + "allow_anonymous = 'yes'", 'listeners.mqtt.allow_anonymous: expected true or false, not "yes"'),
    (MQTT + "allow_anonymous = false", "listeners.mqtt.allow_anonymous: false, and there are no [auth.users]"),
    ("[[limit]]\nuser = 'a'", "limit[1]: it limits nothing: add one of connections, subscriptions, publish_rate, "),
    ("[[limit]]\nuser = 'a'\ngroup = 'b'\nconnections = 1", "limit[1]: it is for a user or for a group, not for both"),
    ("[[limit]]\nconections = 1", "limit[1].conections: unknown key (did you mean connections?)"),
    ("[[limit]]\npool_share = '0%'", "limit[1].pool_share: \"0%\" is too little"),
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
    ("[[topic]]\nfilter = 'a'\npool = '10%'", 'topic[1].pool: "10%" is not a size'),
    ("[[topic]]\nfilter = 'a'\npool = '1kB'", 'topic[1].pool: "1kB" is too little: from 1 MB'),
    ("[[topic]]\nfilter = 'a'\npool = { disk = '1GB' }", 'topic[1].pool: expected a size such as "200MB", or {'),
    (
        "[pool]\nmemory = '3MB'\n[[topic]]\nfilter = 'a'\npool = '2.5MB'",
        "pool.memory: pools of topics take 2.5 MB of 3 MB; at least 1 MB has to be left for all else",
    ),
    (
        "[pool]\ndisk = '1GB'\n[[topic]]\nfilter = 'a'\npool = { memory = '1MB', disk = '2GB' }",
        "pool.disk: pools of topics take 2 GB of 1 GB",
    ),
    (
        "[pool]\nmemory = '100MB'\n" + "".join(f"[[topic]]\nfilter = 'a{n}'\npool = '1MB'\n" for n in range(65)),
        "topic: 65 of them have a pool, and at most 64 may",
    ),
    ("[flap]\nbase = '1h'", "flap.base: 1 h is more than flap.max, 5 min"),
    ("[flap]\nmax = '1h'", "flap.forgive: 10 min is less than flap.max, 1 h"),
    ("[retained]\nbytes_max = '1000TB'", "retained.bytes_max: 1000 TB is more than the memory there is"),
    ("[auth]\nuser = 3", "auth.user: unknown key (did you mean users?)"),
    ("[auth.users]\na = 'secret'", "auth.users.a: is not a hash: make one with `headway passwd`"),
    ("[auth.users]\n'' = 'secret'", 'auth.users."": expected text, not ""'),
    ("topic = 3", "topic: expected tables in double brackets, [[topic]], not 3"),
    ("[topic]\nfilter = 'a'", "topic: expected tables in double brackets, [[topic]], not a table"),
    ("[[topic]]", "topic[1].filter: is missing"),
    ("[[topic]]\nfilter = 'a'\nconflate = 'off'", 'topic[1].conflate: "off" is not a duration'),
    ("[[topic]]\nfilter = 'a'\nconflate = '2d'", "topic[1].conflate: "),
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


def test_check_reports_every_mistake_of_a_policy() -> None:
    lines = mistakes("""
        [[policy]]
        name = "a"
        topic = ["x"]
        topics = ["a/#/b", "stocks.>", "#"]
        subscriptions = "some"
        patience_max = "long"
        [[policy.rule]]
        when = { lag_age = "1x", lag_rekords = 3, any = [{ lag_bytes = "1q" }, { blocked_time = "2s" }] }
        until = { lag_age = "none" }
        for = "x"
        enforce = 1
        then = { action = "discard", which = "oldest", keep_records = "many", keep_bytes = "1x", kep = 2 }
        [[policy.rule]]
        then = "shout"
    """)
    assert [line.partition(": ")[2].partition(":")[0].partition(" ")[0] for line in lines] == [
        "unknown", "topics[1]", "subscriptions", "patience_max", "when.lag_age", "unknown", "when.any[1].lag_bytes",
        "until.lag_age", "unknown", "then.keep_records", "then.keep_bytes", "for", "enforce", "'when'", "unknown",
    ]  # fmt: skip


def test_rule_reports_all_contradictions() -> None:
    lines = mistakes(
        "[[policy]]\nname = 'a'\n[[policy.rule]]\nwhen = { lag_age = '1s' }\nuntil = { lag_age = '2s' }\ntimes = 0\n"
        "retries = 3\nthen = 'disconnect'\n"
    )
    assert [line.partition(": ")[2].partition(":")[0] for line in lines] == ["times", "retries", "until"]


@pytest.mark.parametrize("keep", ["7", "'7'", "1.5", "['10GB', 7]"])
def test_keep_without_a_unit_is_refused_with_both_ways_to_say_it(keep: str) -> None:
    (line,) = mistakes(f"[journal]\npath = 'j'\n[[topic]]\nfilter = 'a'\nkeep = {keep}")
    says = r'topic\[1\].keep: .* has no unit: write a time such as "[\d.]+d" or a size such as "[\d.]+GB"'
    assert re.fullmatch(says, line)
