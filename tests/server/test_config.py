"""The configuration: what is left out, what is written, who may come in, and the host."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from pathlib import Path

import pytest
from tests.server.configs import HASH, MQTT, mistakes

from headway.core.log import Shares
from headway.core.policy.rules.rule import ActionKind
from headway.server.config import host_limits
from headway.server.config.description import describe, remarks
from headway.server.config.fields import Url
from headway.server.config.reading import default_text, load_settings, make_broker, parse_settings
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


def without_text(settings: Settings) -> Settings:
    return dataclasses.replace(settings, text="")


# -- what is left out --------------------------------------------------------------------------------------------------


def test_the_default_file_says_what_the_tables_default_to() -> None:
    default = without_text(load_settings())
    assert without_text(parse_settings("")) == default
    others = '[listeners.amqp]\nurl = "amqp://127.0.0.1:5672"\n[listeners.stomp]\nurl = "stomp://127.0.0.1:61613"\n'
    others += '[listeners.openwire]\nurl = "openwire://127.0.0.1:61616"\n'
    assert without_text(parse_settings(MQTT + others)) == default


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
        "mqtt": "mqtt://127.0.0.1:1883", "amqp": "amqp://127.0.0.1:5672", "stomp": "stomp://127.0.0.1:61613",
        "openwire": "openwire://127.0.0.1:61616",
    }  # fmt: skip
    (policy,) = settings.policies
    assert policy.topics == ("#",)
    assert [(str(rule.when), rule.for_s, rule.then.kind) for rule in policy.rules] == [
        ("(unread_time > 8 s and blocked_time > 4 s) or (unread_time > 15 s and blocked_time > 1 s) or "
         "(credit_exhausted_time > 15 s and lag_records > prefetch + 50) or "
         "(unacknowledged_time > 8 s and lag_records > prefetch + 50) or "
         "unacknowledged_time > 30 s", 0.0, ActionKind.NOTIFY),
        ("(lag_age > 7 s and lag_records > prefetch + 50 and drain_share < 90 % and catching_up > 5 min) or "
         "(lag_age > 7 s and lag_records > prefetch + 50 and catching_up > 10 min) or "
         "(lag_age > 20 s and drain_share < 90 % and catching_up > 5 min)", 5.0, ActionKind.NOTIFY),
        ("lag_age > 20 s and ((drain_share < 90 % and catching_up > 5 min) or "
         "(lag_records > prefetch + 50 and catching_up > 10 min))", 5.0, ActionKind.CONFLATE),
        ("lag_age > 60 s and lag_bytes > 16 MB and (blocked_time > 60 s or catching_up > 10 min)", 30.0,
         ActionKind.OFFLINE),
        ("blocked_time > 5 min", 0.0, ActionKind.DISCONNECT),
    ]  # fmt: skip
    pool = settings.pools[""]
    assert pool.memory_bytes == int(host_limits.memory_bytes() * 0.1)
    assert pool.disk_bytes == max(1_000_000_000, pool.memory_bytes)
    assert settings.shares[""] == settings.shares["mqtt"] == Shares(0.5, 0.5)
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
    assert (own.memory_bytes, own.disk_bytes, own.disk_path) == (20_000_000, 5_000_000_000, Path("/spill"))
    assert settings.shares == {"": Shares(0.5, 0.5), "door": Shares(0.25, 0.5)}
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


def listener_pool(text: str) -> Settings:
    return parse_settings(f'''
        [pool]
        memory = "30MB"
        disk = "2GB"
        disk_path = "/spill"
        max_client_share = "40%"
        max_user_share = "20%"
        [listeners.desk]
        url = "mqtt://127.0.0.1:1884"
        [listeners.desk.pool]
        {text}''')


@pytest.mark.parametrize(
    ("text", "own", "shares", "row"),
    [
        ('max_client_share = "10%"', None, (0.1, 0.2), "shares [pool], 10 % of it per client, 20 % per user"),
        ('max_user_share = "10%"', None, (0.4, 0.1), "shares [pool], 40 % of it per client, 10 % per user"),
        ("connection = true", None, (0.4, 0.2, True), "20 % per user, evicts whole clients"),
        ("", None, (0.4, 0.2), "shares [pool], 40 % of it per client, 20 % per user"),
        ('memory = "10MB"', (10_000_000, 2_000_000_000, "/spill"), (0.4, 0.2), "10 MB of memory, 2 GB of disk in /sp"),
        ("disk = 0", (30_000_000, 0, "/spill"), (0.4, 0.2), "30 MB of memory, no disk"),
        ('disk_path = "/x"', (30_000_000, 2_000_000_000, "/x"), (0.4, 0.2), "30 MB of memory, 2 GB of disk in /x"),
        ("biggest_client_first = true", (30_000_000, 2_000_000_000, "/spill"), (0.4, 0.2), "the biggest client goes"),
    ],
)
def test_a_listeners_pool_takes_from_the_common_one_what_it_does_not_say(
    text: str, own: object, shares: tuple[float, ...], row: str
) -> None:
    settings = listener_pool(text)
    pools = {name: (one.memory_bytes, one.disk_bytes, str(one.disk_path)) for name, one in settings.pools.items()}
    common = (30_000_000, 2_000_000_000, "/spill")
    assert pools == {"": common} | ({} if own is None else {"desk": own})
    assert settings.shares == {"": Shares(0.4, 0.2), "desk": Shares(*shares)}
    (told,) = [line for line in describe(settings).splitlines() if line.startswith("pool desk")]
    assert row in told
    registry = make_broker(settings).registry
    assert (registry.pool_of("desk") is registry.pool_of("")) == (own is None)
    assert registry.pool_of("desk").biggest_client_first == ("biggest" in text)


def test_a_topics_pool_is_a_part_of_the_common_one() -> None:
    settings = parse_settings("""
        [pool]
        memory = "30MB"
        disk = "3GB"
        disk_path = "/spill"
        [[topic]]
        filter = "orders/#"
        pool = "10MB"
        [[topic]]
        filter = "$queue/jobs"
        key = "/id"
        pool = { memory = "5MB", disk = 0 }""")
    assert {name: (one.memory_bytes, one.disk_bytes) for name, one in settings.pools.items()} == {
        "": (15_000_000, 2_000_000_000),
        "topic orders/#": (10_000_000, 1_000_000_000),
        "topic $queue/jobs": (5_000_000, 0),
    }
    assert [topic.filter for topic in settings.keyed] == ["$queue/jobs"], "a table with nothing but a pool has no key"
    told = describe(settings)
    assert "pool topic orders/#     10 MB of memory, 1 GB of disk in /spill, a part of [pool]" in told
    assert "topic orders/#  keyed" not in told
    assert any(remark.startswith("the pool of topic $queue/jobs has no disk") for remark in remarks(settings))
    broker = make_broker(settings)
    assert [(pool.name, pool.topic, pool.lane_share) for pool in broker.registry.distinct_pools()] == [
        ("global", "", 0.5), ("topic orders/#", "orders/#", 1.0), ("topic $queue/jobs", "$queue/jobs", 1.0),
    ]  # fmt: skip
    assert [state.filter for state in broker.registry.router.states] == ["$queue/jobs"]


def test_a_topics_priority_is_that_of_what_is_under_its_filter() -> None:
    settings = parse_settings("""
        [[topic]]
        filter = "alerts/quiet/#"
        priority = 0
        [[topic]]
        filter = "alerts/#"
        priority = 9
        [[topic]]
        filter = "flights/#"
        key = "/id"
        priority = 2
        [[topic]]
        filter = "ticks/#" """)
    assert settings.priorities == {"alerts/quiet/#": 0, "alerts/#": 9, "flights/#": 2}
    assert [topic.filter for topic in settings.keyed] == ["flights/#", "ticks/#"], "a priority alone is no key"
    assert "priority 9" in next(line for line in describe(settings).splitlines() if line.startswith("topic alerts/#"))
    registry = make_broker(settings).registry
    names = "alerts/+/x", "alerts/quiet/x", "flights/1", "#"
    assert [registry.priority_for([(name,)]) for name in names] == [9, 0, 2, 0]
    with pytest.raises(BadConfig, match="priority"):
        parse_settings('[[topic]]\nfilter = "a"\npriority = 10')


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


def test_the_admin_api_is_beyond_loopback_only_with_tls_and_logins() -> None:
    clear, open_ = mistakes('[server]\nadmin = "http://0.0.0.0:9883"')
    assert clear.startswith("server.admin: ")
    assert "loopback" in clear
    assert "nobody would have to log in" in open_
    tls = '[server]\nadmin = "https://0.0.0.0:9883"\n[server.tls]\ncertificate = "c.pem"\nkey = "k.pem"\n'
    (line,) = mistakes(tls)
    assert "nobody would have to log in" in line
    assert parse_settings(tls + f'[auth.users]\nalice = "{HASH}"\n').server.admin is not None
    assert parse_settings(tls + 'ca = "ca.pem"\nverify = "required"\n').server.tls is not None
    (line,) = mistakes(tls + 'ca = "ca.pem"\nverify = "optional"\n')
    assert "nobody would have to log in" in line


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


@pytest.mark.parametrize(("host", "ulimit", "container", "lowest"), [
    (1, 2, 3, 1), (3, 1, 2, 1), (3, 2, 1, 1), (2, -1, None, 2), (None, 4, None, 4),
])  # fmt: skip
def test_a_share_of_memory_is_of_the_lowest_limit(
    monkeypatch: pytest.MonkeyPatch, host: int | None, ulimit: int, container: int | None, lowest: int
) -> None:
    """-1: no ``ulimit -m``."""
    monkeypatch.setattr(host_limits, "_physical_bytes", lambda: host)
    monkeypatch.setattr(host_limits, "cgroup_bytes", lambda: container)
    limits = {host_limits.resource.RLIMIT_RSS: (ulimit, -1)}
    monkeypatch.setattr(host_limits.resource, "getrlimit", limits.__getitem__)
    assert host_limits.memory_bytes.__wrapped__() == lowest


def test_there_is_some_memory() -> None:
    assert 1_000_000 < host_limits.memory_bytes() < 1 << 60


def test_a_websocket_listener() -> None:
    text = (
        '[listeners.web]\nurl = "ws://127.0.0.1"\n[listeners.app]\nurl = "ws://[::1]:9001"\npath = "/live"\n'
        'origins = ["https://*.example.com", "null", "*", "http://localhost:3000", "https://[::1]"]\n'
    )
    settings = parse_settings(text)
    web, app = settings.listeners["web"], settings.listeners["app"]
    assert str(web.url) == "ws://127.0.0.1:8083"
    assert (web.paths, web.origins) == (("/mqtt", "/stomp", "/ws", "/"), None)
    assert (app.paths, len(app.origins or ())) == (("/live",), 5)
    of_mqtt = web.speaking("mqtt")
    assert (of_mqtt.packet_bytes_max, of_mqtt.in_flight_max) == (1_000_000, 1024), "whatever else is spoken there"
    assert "path /mqtt, pages of this host" in describe(settings)
    assert "path /live, pages of https://*.example.com, null" in describe(settings)


def test_connections_beyond_the_open_files_are_remarked_where_they_were_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A limit that nobody wrote asks for nothing."""
    monkeypatch.setattr(host_limits, "open_files_max", lambda: 5_000)
    assert remarks(parse_settings(MQTT)) == []
    (said,) = remarks(parse_settings(MQTT + "connections_max = 6_000\n"))
    assert said == "connections_max adds up to 6,000, and `ulimit -Hn` allows 5,000 open files"


def test_byte_order_mark_is_read(tmp_path: Path) -> None:
    path = tmp_path / "headway.toml"
    path.write_bytes(b"\xef\xbb\xbf" + MQTT.encode())
    assert load_settings(path).listeners
    assert parse_settings("\ufeff" + MQTT).listeners, "as the admin API gets it"


def test_spill_folder_of_another_user_is_left_to_that_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_limits, "SPILL_FOLDER", tmp_path / "headway")
    assert parse_settings("").pools[""].disk_path == tmp_path / "headway", "nobody has it yet"
    (tmp_path / "headway").mkdir()
    assert parse_settings("").pools[""].disk_path == tmp_path / "headway"
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    assert parse_settings("").pools[""].disk_path == tmp_path / f"headway-{os.geteuid()}"
