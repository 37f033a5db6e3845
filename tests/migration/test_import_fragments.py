"""Every fragment of configuration in the documents of the five systems: what it becomes, and that it acts.

The rows of docs/FIVE_SYSTEMS.md that a fragment is about stand in the names of the tests.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from tests.core.queues_stage import QueueStage, consumer, owner
from tests.core.rows import KB, MB, assert_told_why
from tests.core.stage import STUCK, Stage
from tests.migration.imported import imported, rules_of, settings_of

from headway.core.base import ConfigError
from headway.server.config import preset_text
from headway.server.peers import durable_queue

POLICY = """<broker ... > {} <destinationPolicy> <policyMap> <policyEntries> <policyEntry topic=">" > {}
</policyEntry> </policyEntries> </policyMap> </destinationPolicy> ... </broker>"""
CONSTANT = POLICY.format("", '<pendingMessageLimitStrategy> <constantPendingMessageLimitStrategy limit="50"/> '
                             "</pendingMessageLimitStrategy>")  # fmt: skip
MULTIPLE = POLICY.format("", '<pendingMessageLimitStrategy> <prefetchRatePendingMessageLimitStrategy multiplier="2"/> '
                             "</pendingMessageLimitStrategy>")  # fmt: skip
KEEP_ALL = CONSTANT.replace('"50"', '"-1"')
ABORT = POLICY.format("...", "<slowConsumerStrategy> <abortSlowConsumerStrategy /> </slowConsumerStrategy>")
ABORT_OFTEN = '<abortSlowConsumerStrategy maxSlowCount="30" />'
ABORT_CUT = '<abortSlowConsumerStrategy maxSlowCount="-1" maxSlowDuration="30000" checkPeriod="30000" ' \
            'abortConnection="true"/>'  # fmt: skip
CONSUMER = """<consumer> <!-- The depth before which the policy will be applied--> <depth>4235264</depth>
<!-- The message age before which the policy will be applied--> <maessageAge>600000</messageAge>
<!-- The number of message before which the policy will be applied--> <messageCount>50</messageCount>
<!-- Policies configuration --> <policy name="Delete"> <options> <option name="delete-persistent" value="true"/>
</options> </policy> </consumer>"""
"""As Qpid's document prints it, with its misprint, which is not well-formed."""
TOPIC = f'<topic key="stocks.us.*"> {CONSUMER} </topic>'
SPARING = CONSUMER.replace('value="true"', 'value="false"')
TWO_LIMITS = "<consumer> <depth>1024</depth> <messageCount>10</messageCount> </consumer>"
AMPS_DEFAULTS = """<AMPSConfig> <MessageMemoryLimit>10%</MessageMemoryLimit> <MessageDiskLimit>1GB</MessageDiskLimit>
<MessageDiskPath>/var/tmp</MessageDiskPath> <ClientMaxCapacity>50%</ClientMaxCapacity> </AMPSConfig>"""
AMPS_AGE = "<AMPSConfig> <ClientMessageAgeLimit>{}</ClientMessageAgeLimit> </AMPSConfig>"
LRMI = "com.gs.transport_protocol.lrmi."
XAP = "".join(f"{LRMI}slow-consumer.{key}={value}\n" for key, value in (
    ("enabled", "true"), ("throughput", 5000), ("latency", 500), ("retries", 3)))  # fmt: skip
SPRING = f"""<beans> <bean/> <import/> <os-core:embedded-space name="s"> <os-core:properties> <props>
<prop key="{LRMI}slow-consumer.enabled">true</prop> <prop key="{LRMI}slow-consumer.throughput">7000</prop>
<!-- <prop key="{LRMI}slow-consumer.latency">9000</prop> -->
</props></os-core:properties> </os-core:embedded-space></beans>"""
XAP_CLIENT = f"{LRMI}threadpool.queue-size=1000\ncom.gs.fifo_notify.queue=500\n"

SLOW_30 = "credit_exhausted_time > 30 s or blocked_time > 30 s"
SLOW_1 = "credit_exhausted_time > 1 s or blocked_time > 1 s"
ANY = "lag_bytes > 4.24 MB or lag_age > 10 min or lag_records > 50"


@pytest.mark.parametrize(
    ("name", "text", "rules"),
    [
        ("amq.xml", CONSTANT, {"topic > (#; transient)": ["lag_records > 50 -> discard oldest"]}),
        ("amq.xml", MULTIPLE,
         {"topic > (#; transient)": ["lag_records > 2 x prefetch, else 65,532 -> discard oldest"]}),
        ("amq.xml", KEEP_ALL, None),
        ("amq.xml", ABORT, {"topic > (#; all)": [f"{SLOW_30} -> close_consumer"]}),
        ("amq.xml", ABORT_OFTEN,
         {"consumers (#; all)": [f"{SLOW_30} -> close_consumer", f"{SLOW_1}, 30 times -> close_consumer"]}),
        ("amq.xml", ABORT_CUT, {"consumers (#; all)": [f"{SLOW_30} -> disconnect"]}),
        ("qpid.xml", CONSUMER, {"consumers (#; all)": [f"{ANY} -> delete_subscription"]}),
        ("qpid.xml", TOPIC, {"topic stocks.us.* (stocks/us/+; all)": [f"{ANY} -> delete_subscription"]}),
        ("qpid.xml", TWO_LIMITS,
         {"consumers (#; all)": ["lag_bytes > 1.02 kB or lag_records > 10 -> delete_subscription"]}),
        ("amps.xml", AMPS_DEFAULTS, None),
        ("amps.xml", AMPS_AGE.format("30s"), {"clients (#; all)": ["lag_age > 30 s -> disconnect"]}),
        ("amps.xml", AMPS_AGE.format("1h"), {"clients (#; all)": ["lag_age > 1 h -> disconnect"]}),
        ("gs.properties", XAP, {"slow consumers (#; all)": ["drain_rate < 5 kB/s for 0.5 s -> disconnect"]}),
        ("setenv.sh", "JAVA_OPTIONS=-D" + " -D".join(XAP.split()),
         {"slow consumers (#; all)": ["drain_rate < 5 kB/s for 0.5 s -> disconnect"]}),
        ("services.config", "exporter = new NIOConfiguration(1, 128, 1024, true, host, \"0\", 1000, 5000, 500, 3)",
         {"slow consumers (#; all)": ["drain_rate < 5 kB/s for 0.5 s -> disconnect"]}),
        ("pu.xml", SPRING, {"slow consumers (#; all)": ["drain_rate < 7 kB/s for 0.5 s -> disconnect"]}),
        ("gs.properties", XAP_CLIENT, None),
    ],
    ids=lambda value: value if isinstance(value, str) and "." in value[:20] and "\n" not in value else "",
)  # fmt: skip
def test_what_a_fragment_becomes(tmp_path: Path, name: str, text: str, rules: dict[str, list[str]] | None) -> None:
    found = imported(tmp_path, (name, text))
    settings = settings_of(found)
    if rules is None:
        assert "[[policy]]" not in found.text
    else:
        assert rules_of(settings) == rules
    assert all(one.where.file == name and one.where.line >= 1 for one in found.outcomes)


@pytest.mark.parametrize("text", [CONSUMER, TOPIC, CONSUMER.replace("</messageAge>", "</maessageAge>")])
def test_the_elements_of_qpids_document_are_carried_over_whole_with_their_misprint(tmp_path: Path, text: str) -> None:
    found = imported(tmp_path, ("qpid.xml", text))
    assert found.lost == []
    assert 'maessageAge "600000"; a misprint of messageAge' in found.text
    with pytest.raises(ConfigError, match=r"qpid\.xml:2: is not well-formed XML: mismatched tag"):
        imported(tmp_path, ("qpid.xml", text.replace("<maessageAge", "<messageage").replace("</mae", "</me")))


@pytest.mark.parametrize("value", ["-5", "fifty", "", "1.5", "1e3", "9" * 40, "${limit}"])
@pytest.mark.parametrize(("name", "line", "given"), [("depth", 1, "4235264"), ("maessageAge", 2, "600000"),
                                                     ("messageCount", 3, "50")])  # fmt: skip
def test_a_value_that_is_no_limit_is_refused_by_its_name(
    tmp_path: Path, name: str, line: int, given: str, value: str
) -> None:
    found = imported(tmp_path, ("qpid.xml", TOPIC.replace(f"{given}<", f"{value}<")))
    (lost,) = found.lost
    assert (lost.where.line, lost.option, lost.value) == (line, name, value)
    assert f"# {lost}" in found.text
    (when,) = [one.when for one in settings_of(found).policies[0].rules]
    assert len(list(when.leaves())) == 2, "the other limits hold"


def test_a_limit_of_0_is_none(tmp_path: Path) -> None:
    found = imported(tmp_path, ("qpid.xml", CONSUMER.replace("4235264", "0").replace("600000", "0")))
    assert found.lost == []
    assert rules_of(settings_of(found)) == {"consumers (#; all)": ["lag_records > 50 -> delete_subscription"]}


@pytest.mark.parametrize(("bad", "name"), [
    ("<policy name='Conflate'/>", "policy name"), ("<delete-persistent>maybe</delete-persistent>", "delete-persistent"),
])  # fmt: skip
def test_what_goes_with_a_setting_that_is_not_understood_names_it(tmp_path: Path, bad: str, name: str) -> None:
    text = f"<topic key='a'><consumer><depth>5</depth>{bad}</consumer></topic>"
    why = {one.option: one.why for one in imported(tmp_path, ("qpid.xml", text)).lost}
    assert why["depth"] == f"{name}: {why[name]}"


BOTH = "$queue/desk:orders, $queue/durable.desk.orders"


@pytest.mark.parametrize(
    ("text", "topics"),
    [
        (f'<queue name="desk:orders">{CONSUMER}</queue>', BOTH),
        (f"<queue><name>desk:orders</name><desk:orders>{CONSUMER}</desk:orders></queue>", BOTH),
        (f"<topic><name>orders</name><subscriptionName>desk:orders</subscriptionName>{CONSUMER}</topic>", BOTH),
        (f'<queue name="ID:a:b">{CONSUMER}</queue>', "$queue/ID:a:b, $queue/durable.ID.a:b, $queue/durable.ID:a.b"),
        (f'<queue name="orders">{CONSUMER}</queue>', "$queue/orders"),
        (f'<queue name="orders.>">{CONSUMER}</queue>', "$queue/orders/#"),
        (f'<queue name="orders.#">{CONSUMER}</queue>', "$queue/orders/#"),
        (f'<queue name="orders.*.new">{CONSUMER}</queue>', "$queue/orders/+/new"),
        (f'<queue name="desk:orders.#">{CONSUMER}</queue>', "$queue/desk:orders/#, $queue/durable/desk/orders/#"),
        (f'<queue name="#">{CONSUMER}</queue>', "$queue/+"),
    ],
)
def test_a_queue_of_qpid_by_the_names_that_it_has_here(tmp_path: Path, text: str, topics: str) -> None:
    found = imported(tmp_path, ("qpid.xml", text))
    assert ", ".join(settings_of(found).policies[0].topics) == topics
    assert {one.option for one in found.lost} <= {"name"}


@pytest.mark.parametrize("name", [durable_queue("desk", "orders"), "desk:orders", "durable.desk.other"])
def test_q3_a_fragment_acts_on_one_durable_subscription(tmp_path: Path, name: str) -> None:
    stage = QueueStage(imported(tmp_path, ("qpid.xml", f'<queue name="desk:orders">{CONSUMER}</queue>')).text)
    publisher = owner(stage)
    publisher.declare(name, durable=True)
    publisher.bind(name, "amq.topic", "orders")
    stuck = consumer(stage, "stuck", name, acks=None, reads=STUCK, buffer=100)
    publisher.publish("orders", 0, 60, exchange="amq.topic")
    stage.run(1)
    assert stuck.connected is ("other" in name)


def test_a_queue_counts_before_its_topics_and_these_before_all_queues(tmp_path: Path) -> None:
    limits = "<consumer><depth>5</depth></consumer>"
    places = ("<queues>{}</queues>", "<topics>{}</topics>", '<topic key="orders">{}</topic>',
              '<queue name="desk:orders">{}</queue>')  # fmt: skip
    text = "".join(place.format(limits) for place in places)
    settings = settings_of(imported(tmp_path, ("qpid.xml", f"<virtualhost>{text}</virtualhost>")))
    assert [policy.topics[0] for policy in settings.policies] == ["$queue/desk:orders", "orders", "$queue/+", "#"]


@pytest.mark.parametrize("value", ["-5", "fifty"])
@pytest.mark.parametrize("key", ["throughput", "latency", "retries", "enabled"])
def test_a_value_of_xap_that_is_none_is_refused_by_its_name(tmp_path: Path, key: str, value: str) -> None:
    text = re.sub(rf"(?m){key}=.*$", f"{key}={value}", XAP)
    found = imported(tmp_path, ("gs.properties", text))
    assert "[[policy]]" not in found.text
    why = {one.option.rpartition(".")[2]: one.why for one in found.lost}
    assert set(why) == {"enabled", "throughput", "latency", "retries"}
    others = {reason for name, reason in why.items() if name != key}
    assert others == {f"{LRMI}slow-consumer.{key}: {why[key]}"}


def test_j1_a_fragment_acts_a_constant_number_pends(tmp_path: Path) -> None:
    stage = Stage(imported(tmp_path, ("amq.xml", CONSTANT)).text)
    publisher = stage.client("publisher")
    slow = stage.consumer("slow", "t", 1, window=10, acks=False, buffer=100_000, reads=1 * MB)
    for number, _ in enumerate(stage.steps(2)):
        publisher.publish("t", number * 10, 10, qos=1)
    stage.run(1)
    slow.acks = True
    slow.acknowledge(10)
    stage.run(1)
    assert slow.numbers == [*range(10), *range(150, 200)], "its window's worth, and the newest 50"


def test_j2_a_fragment_acts_a_prefetch_of_3_keeps_6(tmp_path: Path) -> None:
    stage = Stage(imported(tmp_path, ("amq.xml", MULTIPLE)).text)
    publisher = stage.client("publisher")
    slow = stage.consumer("slow", "t", 1, window=3, acks=False, buffer=100_000, reads=1 * MB)
    for number, _ in enumerate(stage.steps(2)):
        publisher.publish("t", number * 10, 10, qos=1)
    stage.run(1)
    slow.acks = True
    slow.acknowledge(3)
    stage.run(1)
    assert slow.numbers == [*range(3), *range(194, 200)]


def test_j2_a_fragment_acts_on_who_has_no_prefetch_as_on_who_has_the_default(tmp_path: Path) -> None:
    text = MULTIPLE.replace('topic=">"', 'topic=">" topicPrefetch="30"')
    stage = Stage(imported(tmp_path, ("amq.xml", text)).text)
    publisher = stage.client("publisher")
    slow = stage.consumer("slow", "t", reads=STUCK, buffer=100)
    for number, _ in enumerate(stage.steps(2)):
        publisher.publish("t", number * 10, 10)
    slow.reads = 1 * MB
    stage.run(1)
    first, *kept = slow.numbers
    assert (first, kept) == (0, list(range(200 - len(kept), 200))), "what the kernel had, and then the newest"
    assert 60 <= len(kept) <= 80, "twice 30 at the last look, and what came since"


@pytest.mark.parametrize(
    ("multiplier", "more", "amount"),
    [
        ("2.5", "", "> 2.5 x prefetch, else 81915"), ("1", 'topicPrefetch="0"', "> 1 x prefetch, else 32766"),
        ("0.5", 'topicPrefetch="101"', "> 0.5 x prefetch, else 50"), ("0", "", "> 0"),
        ("0", 'topicPrefetch="5"', "> 0"),
        ("2", 'topicPrefetch="-5"', ""), ("2", 'topicPrefetch="fifty"', ""), ("-2", "", ""), ("many", "", ""),
    ],
)  # fmt: skip
def test_j2_what_a_multiple_is_for_who_has_no_prefetch(
    tmp_path: Path, multiplier: str, more: str, amount: str
) -> None:
    text = MULTIPLE.replace('"2"', f'"{multiplier}"').replace('topic=">"', f'topic=">" {more}')
    found = imported(tmp_path, ("amq.xml", text))
    settings_of(found)
    made = [table for table in tomllib.loads(found.text).get("policy", ()) if table["name"] == "topic >"]
    assert [one["rule"][0]["when"]["lag_records"] for one in made] == ([amount] if amount else [])
    assert (found.lost != []) is not bool(amount)


@pytest.mark.parametrize(("text", "cut"), [(ABORT, False), (ABORT_CUT, True)])
def test_j3_j4_a_fragment_acts_who_is_slow_for_30_s_is_asked_or_cut(tmp_path: Path, text: str, cut: bool) -> None:
    stage = Stage(imported(tmp_path, ("amq.xml", text)).text)
    publisher = stage.client("publisher")
    slow = stage.consumer("slow", "t", 1, window=2, acks=False)
    publisher.publish("t", 0, 10, qos=1)
    stage.run(29)
    assert slow.connected
    assert stage.asked_to_close == []
    stage.run(3)
    if cut:
        assert_told_why(slow)
    assert slow.connected is not cut
    assert (stage.asked_to_close == ["slow"]) is not cut


@pytest.mark.parametrize("topic", ["stocks/us/ibm", "stocks/eu/sap"])
def test_q1_j5_a_fragment_acts_for_its_topics_alone(tmp_path: Path, topic: str) -> None:
    stage = Stage(imported(tmp_path, ("qpid.xml", TOPIC)).text)
    publisher = stage.client("publisher")
    stage.consumer("slow", topic, reads=STUCK)
    publisher.publish(topic, 0, 80)
    stage.run(2)
    assert (stage.stats_of("slow") == []) is topic.startswith("stocks/us"), "unsubscribed, if it is its topic"


@pytest.mark.parametrize(("count", "size", "gone"), [(10, 80, False), (10, 120, True), (12, 10, True)])
def test_q1_a_fragment_acts_ten_messages_that_are_no_larger_than_1024_bytes_in_all(
    tmp_path: Path, count: int, size: int, gone: bool
) -> None:
    stage = Stage(imported(tmp_path, ("qpid.xml", TWO_LIMITS)).text)
    stage.consumer("slow", "t", reads=STUCK, buffer=1)
    stage.client("publisher").publish("t", 0, count, size=size)
    stage.run(1)
    assert (stage.stats_of("slow") == []) is gone


@pytest.mark.parametrize(("text", "spared"), [(CONSUMER, False), (SPARING, True)])
def test_q3_a_fragment_acts_durable_subscriptions_are_spared_unless_told(
    tmp_path: Path, text: str, spared: bool
) -> None:
    stage = Stage(imported(tmp_path, ("qpid.xml", text)).text)
    publisher = stage.client("publisher")
    stage.consumer("durable", "t", 1, reads=STUCK, expiry_s=3600)
    for number, _ in enumerate(stage.steps(1)):
        publisher.publish("t", number * 10, 10, qos=1)
    stage.run(1)
    assert bool(stage.stats_of("durable")) is spared


def test_m4_a_fragment_acts_the_age_limit_disconnects(tmp_path: Path) -> None:
    stage = Stage(imported(tmp_path, ("amps.xml", AMPS_AGE.format("30s"))).text)
    publisher = stage.client("publisher")
    slow = stage.consumer("slow", "t", reads=STUCK)
    publisher.publish("t", 0, 100, size=1000)
    stage.run(29)
    assert slow.connected
    stage.run(3)
    assert_told_why(slow)


@pytest.mark.parametrize("text", [None, XAP])
def test_x2_the_fragment_and_the_preset_act_alike(tmp_path: Path, text: str | None) -> None:
    stage = Stage(imported(tmp_path, ("gs.properties", text)).text if text else preset_text("xap"))
    publisher = stage.client("publisher")
    slow = stage.consumer("slow", "t", reads=3 * KB)
    enough = stage.consumer("enough", "t", reads=20 * KB)
    for number, _ in enumerate(stage.steps(10)):
        publisher.publish("t", number, size=1500)
    assert_told_why(slow)
    assert enough.connected


def test_every_preset_acts_on_who_reads_nothing_as_the_original_does() -> None:
    """Two seconds before its time nothing has happened."""
    before: dict[str, bool] = {}
    for name, seconds, size in (
        ("xap", 2, 100), ("nats", 10, 100), ("redis", 60, 9 * MB), ("a-mq", 30, 100), ("qpid", 1, 100),
    ):  # fmt: skip
        stage = Stage(preset_text(name), memory="500MB", disk="1GB", max_client_share="90%")
        publisher = stage.client("publisher")
        slow = stage.consumer("slow", "t", reads=STUCK)
        for number in range(90):
            publisher.publish("t", number, size=max(100, size // 90))
        stage.run(max(0.2, seconds - 2))
        before[name] = slow.connected and bool(stage.stats_of("slow")) and stage.asked_to_close == []
        stage.run(6)
        assert not slow.connected or not stage.stats_of("slow") or stage.asked_to_close, name
    assert before == {"xap": True, "nats": True, "redis": True, "a-mq": True, "qpid": False}, "Qpid's has no patience"


def test_the_preset_of_mosquitto_keeps_the_oldest_thousand() -> None:
    stage = Stage(preset_text("mosquitto"))
    publisher = stage.client("publisher")
    slow = stage.consumer("slow", "t", reads=STUCK, buffer=100)
    for number, _ in enumerate(stage.steps(3)):
        publisher.publish("t", number * 100, 100)
    slow.reads = 10 * MB
    stage.run(3)
    publisher.publish("t", 9999)
    stage.run(1)
    *kept, last = slow.numbers
    assert kept[:1000] == list(range(1000))
    assert last == 9999
    assert slow.gap_told == {"discarded": 3000 - len(kept)}, "and it is told of the others"
    assert slow.gap_told["discarded"] > 1500


def test_the_preset_of_activemq_makes_producers_wait() -> None:
    stage = Stage(preset_text("activemq"), memory="2MB", disk="100MB", max_client_share="100%")
    publisher = stage.client("publisher")
    stage.consumer("slow", "t", reads=STUCK)
    accepted = [publisher.publish("t", number, 60, size=1000) for number, _ in enumerate(stage.steps(10))]
    assert accepted[0]
    assert not accepted[-1]
    assert stage.told("fast_producer")[0]["client"] == "publisher"


def test_x1_switched_off_it_is_a_dry_run(tmp_path: Path) -> None:
    settings = settings_of(imported(tmp_path, ("gs.properties", XAP.replace("true", "false"))))
    assert [rule.enforce for rule in settings.policies[0].rules] == [False]
    without = settings_of(imported(tmp_path, ("gs.properties", f"{LRMI}slow-consumer.latency=2000")))
    (rule,) = without.policies[0].rules
    assert (rule.enforce, rule.for_s, rule.retries) == (False, 2.0, 3)


def test_m1_m2_m5_the_limits_of_amps_are_those_of_the_pool(tmp_path: Path) -> None:
    settings = settings_of(imported(tmp_path, ("amps.xml", AMPS_DEFAULTS)))
    pool = settings.pools[""]
    assert (pool.disk_bytes, str(pool.disk_path), settings.shares[""].client) == (10**9, "/var/tmp", 0.5)


def test_x3_the_client_s_own_queues_are_explained_by_the_window_of_its_protocol(tmp_path: Path) -> None:
    found = imported(tmp_path, ("gs.properties", XAP_CLIENT))
    assert [(one.where.line, one.option) for one in found.lost] == [
        (1, f"{LRMI}threadpool.queue-size"), (2, "com.gs.fifo_notify.queue"),
    ]  # fmt: skip
    first, second = found.lost
    assert f"# {first}" in found.text
    assert "Receive Maximum (MQTT 5), prefetch (AMQP 0-9-1, STOMP, JMS) or credit (AMQP 1.0)" in first.why
    assert "the same limit of the client" in second.why
