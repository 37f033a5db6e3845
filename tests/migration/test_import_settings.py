"""What single settings become, where it takes more than one line to say: listeners, pools, the order of policies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.migration.imported import imported, rules_of, settings_of

from headway.core.log import Shares
from headway.migration import Import
from headway.migration.draft import Result
from headway.server.config import default_text, host_limits, parse_settings
from headway.server.protocols import SCHEMES


@pytest.mark.parametrize(
    ("uri", "scheme"),
    [("tcp", "openwire"), ("nio", "openwire"), ("stomp+nio", "stomp"), ("auto+nio", "auto"), ("amqp", "amqp"),
     ("mqtt+nio", "mqtt"), ("ws", "ws"), ("http", "http"), ("multicast", "multicast")],
)  # fmt: skip
def test_a_connector_is_a_listener_if_the_registry_has_its_scheme(tmp_path: Path, uri: str, scheme: str) -> None:
    text = f'<broker><transportConnector name="one" uri="{uri}://127.0.0.1:6161"/></broker>'
    found = imported(tmp_path, ("activemq.xml", text))
    settings = settings_of(found)
    if scheme in SCHEMES:
        assert (str(settings.listeners["one"].url), found.lost) == (f"{scheme}://127.0.0.1:6161", [])
    else:
        assert "one" not in settings.listeners
        assert found.lost[0].why == f"{scheme} is not spoken here (listeners: {', '.join(SCHEMES)})"


@pytest.mark.parametrize(
    ("text", "host", "anonymous"),
    [
        ("listener 1883\nallow_anonymous true\n", "0.0.0.0", True),
        ("listener 1883\n", "127.0.0.1", None),
        ("listener 1883\nallow_anonymous false\n", "127.0.0.1", None),
        ("listener 1883 127.0.0.1\nallow_anonymous true\n", "127.0.0.1", None),
        ("port 1883\n", "127.0.0.1", None),
    ],
)
def test_a_listener_is_open_to_others_only_if_it_was(tmp_path: Path, text: str, host: str, anonymous: object) -> None:
    found = imported(tmp_path, ("mosquitto.conf", text), kind="mosquitto")
    (listener,) = settings_of(found).listeners.values()
    assert (listener.url.host, listener.allow_anonymous_given) == (host, anonymous)
    if host == "127.0.0.1" and "127" not in text:
        assert "write that here once there are [auth.users]" in found.text


@pytest.mark.parametrize(
    ("name", "text", "host"),
    [
        ("qpidd.conf", "port=5672\ndata-dir=/d\n", "127.0.0.1"),
        ("qpidd.conf", "port=5672\nauth=no\n", "0.0.0.0"),
        ("config.xml", "<broker><connector><port>5672</port></connector></broker>", "127.0.0.1"),
        ("rabbitmq.conf", "listeners.tcp.default = 5672\n", "127.0.0.1"),
        ("nats.conf", "max_pending: 1mb\nmqtt { port: 1883 }\n", "0.0.0.0"),
        ("nats.conf", "max_pending: 1mb\nmqtt { port: 1883 }\nauthorization { token: x }\n", "127.0.0.1"),
        ("activemq.xml", '<broker><transportConnector uri="mqtt://0.0.0.0:1883"/></broker>', "0.0.0.0"),
        ("activemq.xml", '<broker><transportConnector uri="mqtt://0.0.0.0:1883"/>'
                         "<plugins><simpleAuthenticationPlugin/></plugins></broker>", "127.0.0.1"),
    ],
)  # fmt: skip
def test_who_asked_for_a_login_is_on_loopback_until_there_are_users(
    tmp_path: Path, name: str, text: str, host: str
) -> None:
    (listener,) = settings_of(imported(tmp_path, (name, text))).listeners.values()
    assert (listener.url.host, listener.allow_anonymous_given) == (host, True if host == "0.0.0.0" else None)


def test_users_of_mosquitto_come_along(tmp_path: Path) -> None:
    users = tmp_path / "passwd"
    users.write_text("bob:$7$101$c2FsdHNhbHQ=$" + "A" * 86 + "==\n")
    found = imported(tmp_path, ("mosquitto.conf", f"listener 1883\npassword_file {users}\n"))
    settings = parse_settings(found.text)  # the linter warns that passwords go over the network in clear, as there
    assert list(settings.auth.users) == ["bob"]
    assert str(settings.listeners["mqtt-1883"].url) == "mqtt://0.0.0.0:1883"
    users.unlink()
    found = imported(tmp_path, ("mosquitto.conf", f"listener 1883\npassword_file {users}\n"))
    assert str(settings_of(found).listeners["mqtt-1883"].url) == "mqtt://127.0.0.1:1883"
    assert found.lost[0].option == "password_file"


def test_limits_of_all_clients_leave_the_default_listeners(tmp_path: Path) -> None:
    listeners = settings_of(imported(tmp_path, ("redis.conf", "maxclients 77\n"))).listeners
    default = parse_settings(default_text()).listeners
    assert {name: one.url for name, one in listeners.items()} == {name: one.url for name, one in default.items()}
    assert {one.connections_max for one in listeners.values()} == {77}


def connectors(*uris: str, more: str = "") -> tuple[str, str]:
    inner = "".join(
        f'<transportConnector name="c{number}" uri="{uri.replace("&", "&amp;")}"/>' for number, uri in enumerate(uris)
    )
    return "activemq.xml", f"<broker>{inner}{more}</broker>"


def test_the_inactivity_of_a_connector_is_the_keep_alive_of_its_listener(tmp_path: Path) -> None:
    option = "wireFormat.maxInactivityDuration="
    found = imported(tmp_path, connectors(
        f"tcp://127.0.0.1:6161?{option}90000", f"tcp://127.0.0.1:6162?{option}0", f"auto://127.0.0.1:6163?{option}9000",
        f"tcp://127.0.0.1:6164?{option}10",
    ))  # fmt: skip
    given = {name: one.keep_alive_max_s for name, one in settings_of(found).listeners.items()}
    assert given == {"c0": 90.0, "c1": 64_800.0, "c2": 64_800.0, "c3": 64_800.0}
    assert [one.option for one in found.lost] == ["uri wireFormat.maxInactivityDuration"] * 3


ABORT = (
    "<policyEntry topic='a.>'><slowConsumerStrategy><abortSlowConsumerStrategy/></slowConsumerStrategy></policyEntry>"
)
PENDING = (
    "<policyEntry topic='>'><pendingMessageLimitStrategy><constantPendingMessageLimitStrategy limit='5'/>"
    "</pendingMessageLimitStrategy></policyEntry>"
)


def written(found: Import) -> list[tuple[str, str, tuple[str, ...], list[str]]]:
    """The policies of a config: topics, subscriptions, listeners, and the last word of each rule."""
    return [
        (",".join(one.topics), str(one.subscriptions), one.listeners,
         [rule.name for rule in one.rules])
        for one in settings_of(found).policies
    ]  # fmt: skip


def test_the_time_of_writes_that_all_connectors_have_is_a_rule_of_each_policy(tmp_path: Path) -> None:
    uris = ("tcp://127.0.0.1:6161?transport.soWriteTimeout=45000", "mqtt://127.0.0.1:6162?soWriteTimeout=45000")
    found = imported(tmp_path, connectors(*uris, more=ABORT + PENDING))
    assert found.lost == []
    assert written(found) == [
        ("a/#", "all", (), ["slow for too long", "write timeout"]),
        ("#", "durable", (), ["write timeout"]), ("#", "transient", (), ["pending limit", "write timeout"]),
    ]  # fmt: skip
    assert "blocked_time = \"45s\"" in found.text
    alone = imported(tmp_path, connectors(*uris))
    assert written(alone) == [("#", "all", (), ["write timeout"])]


def test_a_rule_that_would_come_too_late_is_not_written(tmp_path: Path) -> None:
    cuts = ABORT.replace("Strategy/>", "Strategy abortConnection='true'/>")
    found = imported(tmp_path, connectors("tcp://127.0.0.1:6161?soWriteTimeout=45000", more=cuts))
    assert [rules for *_, rules in written(found)] == [["slow for too long"], ["write timeout"]]
    often = cuts.replace("abortC", "maxSlowDuration='-1' maxSlowCount='3' abortC")
    found = imported(tmp_path, connectors("tcp://127.0.0.1:6161?soWriteTimeout=45000", more=often))
    assert [rules for *_, rules in written(found)] == [["slow too often", "write timeout"], ["write timeout"]]


def test_the_time_of_writes_of_one_connector_is_for_its_clients(tmp_path: Path) -> None:
    uris = ("tcp://127.0.0.1:6161?transport.soWriteTimeout=45000", "mqtt://127.0.0.1:6162?soWriteTimeout=0")
    found = imported(tmp_path, connectors(*uris, more=ABORT))
    assert written(found) == [
        ("a/#", "all", ("c0",), ["slow for too long", "write timeout"]), ("#", "all", ("c0",), ["write timeout"]),
        ("a/#", "all", (), ["slow for too long"]), ("#", "all", (), [""]),
    ]  # fmt: skip


@pytest.mark.parametrize("file", [
    connectors("tcp://127.0.0.1:6161", "ssl://127.0.0.1:6162?soWriteTimeout=45000"),
    ("amps.xml", "<AMPSConfig><Transport><Name>t</Name><Type>tcps</Type><InetAddr>9007</InetAddr>"
                 "<ClientMessageAgeLimit>1h</ClientMessageAgeLimit></Transport></AMPSConfig>"),
], ids=["activemq", "amps"])  # fmt: skip
def test_a_policy_of_a_listener_that_is_a_comment_is_one(tmp_path: Path, file: tuple[str, str]) -> None:
    found = imported(tmp_path, file)
    assert [one.topics for one in settings_of(found).policies if one.listeners] == []
    assert "# listeners = [" in found.text
    assert "its listener is a comment, and so is its rule" in [one.why for one in found.lost]


def test_a_share_of_a_transport_is_one_of_the_pool_of_the_instance(tmp_path: Path) -> None:
    most = host_limits.memory_bytes()
    transport = "<Transport><Name>{}</Name><Type>tcp</Type><InetAddr>{}</InetAddr>{}</Transport>"
    text = f"<AMPSConfig><MessageMemoryLimit>{most * 6 // 10}</MessageMemoryLimit>"
    text += transport.format("desk", 9007, "<ClientMaxCapacity>10%</ClientMaxCapacity>")
    text += transport.format("web", 9008, f"<MessageMemoryLimit>{most * 4 // 10}</MessageMemoryLimit>")
    settings = settings_of(imported(tmp_path, ("amps.xml", text + "</AMPSConfig>")))
    assert {name: pool.memory_bytes for name, pool in settings.pools.items()} == {
        "": most * 6 // 10, "web": most * 4 // 10,
    }  # fmt: skip
    half = Shares(0.5, 0.5, connection=True)
    assert settings.shares == {"": half, "desk": Shares(0.1, 0.5, connection=True), "web": half}


def test_memory_that_this_machine_has_not_is_a_comment(tmp_path: Path) -> None:
    most = host_limits.memory_bytes()
    text = "<AMPSConfig><MessageMemoryLimit>{}</MessageMemoryLimit></AMPSConfig>"
    fits = settings_of(imported(tmp_path, ("amps.xml", text.format(most))))
    assert fits.pools[""].memory_bytes == most
    found = imported(tmp_path, ("amps.xml", text.format(most + 1)))
    assert settings_of(found).pools[""].memory_bytes == most // 10
    assert f'# memory = "{most + 1}B"' in found.text
    assert [one.result for one in found.outcomes] == [Result.LOST]


def test_narrow_policies_come_first_and_one_for_the_rest_last(tmp_path: Path) -> None:
    entries = "".join(
        f'<policyEntry {kind}="{name}"><slowConsumerStrategy><abortSlowConsumerStrategy/></slowConsumerStrategy>'
        "</policyEntry>" for kind, name in (("topic", "a.>"), ("topic", "a.b.*"), ("queue", ">"), ("queue", "q.>"),
                                            ("queue", "q.eu"), ("topic", "a.b.c"))
    )  # fmt: skip
    settings = settings_of(imported(tmp_path, ("activemq.xml", f"<broker>{entries}</broker>")))
    assert [policy.topics for policy in settings.policies] == [
        ("a/b/c",), ("a/b/+",), ("a/#",), ("$queue/q.eu",), ("$queue/q/#",), ("$queue/+",), ("#",),
    ]  # fmt: skip
    assert [rule.then.kind for rule in settings.policies[-1].rules] == ["notify"]


def test_patterns_of_queue_names_are_carried_over_destination_by_destination(tmp_path: Path) -> None:
    text = '<policyEntry queue="orders.>, *.eu, b*, >" memoryLimit="1mb"/>'
    found = imported(tmp_path, ("activemq.xml", text))
    assert settings_of(found).policies[0].topics == ("$queue/orders/#", "$queue/+/eu", "$queue/+")
    assert [(one.option, one.value) for one in found.lost] == [("policyEntry queue", "orders.>, *.eu, b*, >")]


MB = 1 << 20


def test_memory_limits_of_destinations_are_pools_the_narrow_ones_first(tmp_path: Path) -> None:
    image = "<subscriptionRecoveryPolicy><lastImageSubscriptionRecoveryPolicy/></subscriptionRecoveryPolicy>"
    text = f"""<broker><policyEntry queue="orders.>" memoryLimit="20mb"/>
        <policyEntry queue="orders.eu" memoryLimit="10mb"/> <policyEntry queue="jobs" memoryLimit="10mb"/>
        <policyEntry queue=">" memoryLimit="2mb"/> <policyEntry topic=">" memoryLimit="2mb"/>
        <policyEntry memoryLimit="2mb"/> <policyEntry topic="small" memoryLimit="10kb"/>
        <policyEntry topic="image" memoryLimit="3mb">{image}</policyEntry>
        <memoryUsage limit="100mb"/></broker>"""
    found = imported(tmp_path, ("activemq.xml", text))
    settings = settings_of(found)
    assert {pool.topic: pool.memory_bytes for pool in settings.pools.values()} == {
        "": 57 * MB, "$queue/orders.eu": 10 * MB, "$queue/orders/#": 20 * MB, "$queue/jobs": 10 * MB, "image": 3 * MB,
    }  # fmt: skip
    assert list(settings.pools)[1:3] == ["topic $queue/orders.eu", "topic $queue/orders/#"]
    assert [topic.filter for topic in settings.keyed] == ["image"]
    (wide,) = [line for line in found.text.splitlines() if line.startswith("pool = \"20")]
    assert "for all of them together" in wide
    assert found.lost == []


def test_memory_limits_that_would_take_more_than_half_of_the_pool_are_comments(tmp_path: Path) -> None:
    text = "".join(f'<policyEntry queue="q{number}" memoryLimit="10mb"/>' for number in range(6))
    image = "<lastImageSubscriptionRecoveryPolicy/>"
    text += f'<policyEntry topic="image" memoryLimit="10mb">{image}</policyEntry><memoryUsage limit="100mb"/>'
    text += '<transportConnector name="one" uri="tcp://127.0.0.1:6161?wireFormat.maxFrameSize=40000000"/>'
    found = imported(tmp_path, ("activemq.xml", f"<broker>{text}</broker>"))
    settings = settings_of(found)
    assert [one.why for one in found.lost] == ["one client may take up less of its pool; the line is a comment"]
    assert [pool.topic for pool in settings.pools.values()] == ["", *(f"$queue/q{number}" for number in range(5))]
    assert '# [[topic]]\n# filter = "$queue/q5"\n# pool = "10MiB"' in found.text
    assert [topic.filter for topic in settings.keyed] == ["image"]
    assert len(settings.policies) == 8, "their rules are there all the same"


@pytest.mark.parametrize(
    ("text", "sweep"),
    [
        ('<abortSlowConsumerStrategy checkPeriod="1000"/>', 1.0),
        ('<abortSlowConsumerStrategy checkPeriod="5"/>', 0.01),
        ('<abortSlowConsumerStrategy checkPeriod="10000"/>', 10.0),
        ('<abortSlowConsumerStrategy checkPeriod="30000"/>', None),
        ('<b><abortSlowConsumerStrategy checkPeriod="3000"/> <abortSlowAckConsumerStrategy checkPeriod="500"/></b>',
         0.5),
        ('<b><abortSlowConsumerStrategy checkPeriod="500"/> <abortSlowAckConsumerStrategy checkPeriod="3000"/></b>',
         0.5),
        ('<abortSlowConsumerStrategy checkPeriod="-5"/>', None),
        ('<abortSlowConsumerStrategy checkPeriod="0"/>', None),
        ('<abortSlowConsumerStrategy checkPeriod="fifty"/>', None),
        ("<slow-consumer-detection><delay>2</delay></slow-consumer-detection>", 2.0),
        ("<slow-consumer-detection><delay>100</delay><timeunit>milliseconds</timeunit></slow-consumer-detection>", 0.1),
        ("<slow-consumer-detection><delay>1</delay><timeunit>MINUTES</timeunit></slow-consumer-detection>", None),
        ("<slow-consumer-detection><delay>1</delay><timeunit>weeks</timeunit></slow-consumer-detection>", None),
        ("<virtualhost><housekeeping><checkPeriod>5000</checkPeriod></housekeeping></virtualhost>", 5.0),
    ],
)  # fmt: skip
def test_the_period_of_checks_is_the_sweep(tmp_path: Path, text: str, sweep: float | None) -> None:
    found = imported(tmp_path, ("a.xml", text), kind="qpid" if "housekeeping" in text else "")
    assert settings_of(found).server.sweep_s == (0.2 if sweep is None else sweep)
    assert ("sweep = " in found.text) is (sweep is not None)
    assert (found.lost != []) is any(word in text for word in ("-5", '"0"', "fifty", "weeks", "housekeeping"))


def test_what_is_for_all_topics_is_kept_from_durable_queues(tmp_path: Path) -> None:
    text = '<broker><policyEntry topic=">"><abortSlowConsumerStrategy/></policyEntry>{}</broker>'
    settings = settings_of(imported(tmp_path, ("activemq.xml", text.format(""))))
    queues = settings.policies[0]
    assert (queues.topics, queues.subscriptions, queues.rules[0].then.kind) == (("$queue/+",), "durable", "notify")
    assert [policy.topics for policy in settings.policies] == [("$queue/+",), ("#",)]
    both = text.format('<policyEntry queue=">"><abortSlowConsumerStrategy/></policyEntry>')
    assert len(rules_of(settings_of(imported(tmp_path, ("activemq.xml", both))))) == 2


def test_what_limits_transient_subscriptions_alone_does_not_reach_durable_ones(tmp_path: Path) -> None:
    text = """<broker><policyEntry topic="t"><constantPendingMessageLimitStrategy limit="50"/>
    <abortSlowConsumerStrategy/></policyEntry></broker>"""
    rules = rules_of(settings_of(imported(tmp_path, ("activemq.xml", text))))
    slow = "credit_exhausted_time > 30 s or blocked_time > 30 s -> close_consumer"
    assert rules == {
        "topic t (t; transient)": ["lag_records > 50 -> discard oldest", slow], "topic t, durable (t; durable)": [slow],
    }  # fmt: skip


def test_policies_of_rabbitmq_by_priority_and_with_its_timeout(tmp_path: Path) -> None:
    policies = [
        {"name": "all", "pattern": ".*", "priority": 0, "definition": {"max-length": 9}},
        {"name": "orders", "pattern": "^orders$", "priority": 5, "definition": json.dumps({"max-length": 50})},
        {"name": "late", "pattern": "^orders$", "priority": 1, "definition": {"max-length": 5}},
        {"name": "ttl", "pattern": "^other$", "definition": {"message-ttl": 5}},
    ]
    found = imported(tmp_path, ("policies.json", json.dumps(policies)), ("rabbitmq.conf", "consumer_timeout = 60000\n"))
    late = "ack_age > 1 min -> close_consumer"
    rules = rules_of(settings_of(found))
    rules = {name: [rule.replace("60 s", "1 min") for rule in some] for name, some in rules.items()}
    assert rules == {
        "orders ($queue/orders; all)": ["lag_records > 50 -> discard oldest", late],
        "all ($queue/+; all)": ["lag_records > 9 -> discard oldest", late],
    }
    whys = {one.value: one.why for one in found.lost}
    assert whys["late"] == "the policy 'orders' is for the same queues, and of a higher priority"
    assert whys["ttl"] == "nothing of it is a rule here"


@pytest.mark.parametrize(
    ("name", "text", "rules"),
    [
        ("redis.conf", "client-output-buffer-limit normal 0 0 0 pubsub 64mb 0 0\n",
         ["lag_bytes > 67.1 MB -> disconnect"]),
        ("redis.conf", "client-output-buffer-limit pubsub 0 0 0\n", []),
        ("redis.conf", "maxclients 5\n",
         ["lag_bytes > 33.6 MB -> disconnect", "lag_bytes > 8.39 MB for 60 s -> disconnect"]),
        ("nats.conf", "max_pending: 1mb\n", ["lag_bytes > 1.05 MB -> disconnect", "blocked_time > 10 s -> disconnect"]),
        ("mosquitto.conf", "max_inflight_messages 5\n", ["lag_records > 1,000 -> discard newest"]),
        ("mosquitto.conf", "max_queued_messages 0\n", []),
        ("rabbitmq.conf", "vm_memory_high_watermark.relative = 0.4\n", ["ack_age > 30 min -> close_consumer"]),
        ("rabbitmq.conf", "consumer_timeout = undefined\n", []),
    ],
)  # fmt: skip
def test_limits_that_hold_by_default_there_are_written_here(
    tmp_path: Path, name: str, text: str, rules: list[str]
) -> None:
    settings = settings_of(imported(tmp_path, (name, text)))
    assert [rule for some in rules_of(settings).values() for rule in some if "does not" not in rule] == (
        rules or [rule for some in rules_of(parse_settings(default_text())).values() for rule in some]
    )
