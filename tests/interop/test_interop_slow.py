"""Slow consumers: judged by their policies, told so, and nobody else notices."""

from __future__ import annotations

import json
import socket
import threading
from typing import Any

import pytest
from bench.wires.packets import encode_publish
from prometheus_client.parser import text_string_to_metric_families
from tests.interop.governed import SMALL, flood
from tests.interop.governed import governed as governed
from tests.interop.process import BrokerProcess
from tests.interop.raw import Message, PubAck, Raw
from tests.interop.waiting import until

from headway.wire.mqtt.packets import NEVER, TopicRequest
from headway.wire.mqtt.properties import UserProperties

# -- disconnected, and told why -------------------------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1])
def test_who_stops_reading_is_disconnected_and_finds_the_reason(governed: BrokerProcess, name: str, qos: int) -> None:
    topic = f"blocked/{name}"
    with (
        Raw(governed.port, name, **SMALL) as stuck,
        Raw(governed.port, f"{name}-good") as good,
        Raw(governed.port) as watcher,
        Raw(governed.port, f"{name}-pub") as writer,
    ):
        watcher.subscribed(f"$SYS/headway/+/{name}")
        stuck.subscribed(TopicRequest(topic, qos))
        good.subscribed(topic)
        sent = flood(writer, topic, 1000)

        def most_lag() -> dict[str, Any] | None:
            """The consumer that stopped, once the list has it first. It is disconnected soon."""
            first: dict[str, Any] = governed.get("/v1/consumers")["consumers"][0]
            return first if first["client"] == name and first["lag_records"] > 500 else None

        assert until(most_lag)["held_bytes"] > 0
        assert good.payloads(1000) == sent
        until(lambda: governed.consumer(f"{name}-good")["lag_records"] == 0)
        until(lambda: not governed.consumer(name), what="the consumer is gone")
        # Reading again, it finds whole records in order, and behind them why it was disconnected.
        disconnect = stuck.wait_disconnect()
        assert disconnect.code == 0x97
        assert disconnect.reason
        assert "blocked" in disconnect.reason or "nothing" in disconnect.reason
        got = [m.payload for m in stuck.inbox if type(m) is Message]
        assert 0 < len(got) < 1000
        assert got == sent[: len(got)]
        # Everybody who wants to know, knows: also long after.
        told = {m.topic.split("/")[2]: json.loads(m.payload) for m in watcher.so_far()}
        assert set(told) >= {"slow", "disconnected"}
        assert told["disconnected"]["text"] == disconnect.reason
        verdict = governed.verdicts(name)[0]
        assert (verdict["reason"], verdict["cause"], verdict["policy"]) == ("blocked", "application", "blocked")
        assert verdict["readings"][0]["value"] >= 0.3
        assert verdict["text"] in disconnect.reason
        lost = governed.publisher(f"{name}-pub")["lost_records"]
        assert sum(lost.values()) + len(got) == 1000
        flood(writer, topic, 10)
        assert len(good.messages(10)) == 10


def test_a_client_of_3_1_1_gets_whole_records_and_the_end(governed: BrokerProcess, name: str) -> None:
    with Raw(governed.port, name, 4, **SMALL) as stuck, Raw(governed.port) as writer:
        stuck.subscribed(f"blocked/{name}")
        sent = flood(writer, f"blocked/{name}", 500)
        until(lambda: governed.verdicts(name))
        stuck.wait_end()
        assert stuck.decoder.buffered_bytes == 0
        got = [m.payload for m in stuck.inbox]
        assert 0 < len(got) < 500
        assert got == sent[: len(got)]


@pytest.mark.parametrize(
    ("how", "code"), [("takeover", 0x8E), ("operator", 0x98), ("protocol error", 0x81), ("keep-alive", 0x8D)]
)
@pytest.mark.parametrize("qos", [0, 1])
def test_the_last_word_stands_behind_whole_records(
    governed: BrokerProcess, name: str, how: str, code: int, qos: int
) -> None:
    """Whatever ends the connection of a client that does not read: what was half sent is finished first."""
    keep_alive = 1 if how == "keep-alive" else 0
    with Raw(governed.port, name, keep_alive_s=keep_alive, **SMALL) as stuck, Raw(governed.port) as writer:
        stuck.subscribed(TopicRequest(name, qos))
        payloads = [b"%06d" % i + b"." * 9_000 for i in range(100)]
        for payload in payloads:
            writer.publish(name, payload, qos)
        writer.published("flood/end")
        until(lambda: governed.consumer(name)["lag_records"])
        if how == "takeover":
            Raw(governed.port, name).close()
        elif how == "operator":
            assert governed.call(f"/v1/clients/{name}", "DELETE")[0] == 204
        elif how == "protocol error":
            stuck.send(b"\x36\x00")
        until(lambda: not governed.consumer(name))
        assert stuck.wait_disconnect().code == code
        got = [m.payload for m in stuck.inbox if type(m) is Message]
        assert 0 < len(got) < 100
        assert got == payloads[: len(got)]


def test_who_acknowledges_late_is_told_so(governed: BrokerProcess, name: str) -> None:
    with Raw(governed.port, name, receive_max=5) as late, Raw(governed.port) as writer:
        late.subscribed(TopicRequest(f"late/{name}", 1))
        for i in range(20):
            writer.publish(f"late/{name}", b"%d" % i, 1)
        late.messages(5)
        assert late.wait_disconnect().code == 0x97
    verdict = governed.verdicts(name)[0]
    assert (verdict["reason"], verdict["cause"]) == ("ack_age", "application")


def test_a_durable_subscription_survives_the_disconnect(governed: BrokerProcess, name: str) -> None:
    keep: dict[str, Any] = {"clean_start": False, "session_expiry_s": NEVER}
    with Raw(governed.port, name, receive_max=5, **keep) as slow, Raw(governed.port) as writer:
        slow.subscribed(TopicRequest(f"lag/{name}", 1))
        for i in range(300):
            writer.publish(f"lag/{name}", b"%d" % i, 1)
        assert slow.wait_disconnect().code == 0x97
        with Raw(governed.port, name, **keep) as back:
            assert back.connack.session_present
            assert back.payloads(300) == [b"%d" % i for i in range(300)]


def test_a_dry_run_only_says_what_it_would_do(governed: BrokerProcess, name: str) -> None:
    with Raw(governed.port, name, **SMALL) as stuck, Raw(governed.port) as writer:
        stuck.subscribed(f"dry/{name}")
        sent = flood(writer, f"dry/{name}", 500)
        verdict = until(lambda: governed.verdicts(name))[0]
        assert (verdict["enforced"], verdict["action"]["kind"]) == (False, "disconnect")
        assert stuck.payloads(500) == sent


def test_slow_and_no_longer_slow(governed: BrokerProcess, name: str) -> None:
    with Raw(governed.port, name, **SMALL) as stuck, Raw(governed.port) as writer, Raw(governed.port) as watcher:
        watcher.subscribed(f"$SYS/headway/slow/{name}", f"$SYS/headway/recovered/{name}")
        stuck.subscribed(f"notify/{name}")
        sent = flood(writer, f"notify/{name}", 500)
        assert json.loads(watcher.message().payload)["client"] == name
        row = governed.consumer(name)
        assert row["slow"]
        assert row["slow_count"] == 1
        assert row["last_verdict"]["policy"] == "notify"
        metrics = prometheus(governed)
        assert metrics["headway_consumer_slow", name] == 1
        assert metrics["headway_consumer_lag_records", name] > 100
        assert metrics["headway_verdicts_total", None] >= 1
        assert stuck.payloads(500) == sent
        assert watcher.message().topic == f"$SYS/headway/recovered/{name}"
        until(lambda: governed.consumer(name)["state"] == "ok")
        assert prometheus(governed)["headway_consumer_slow", name] == 0


def prometheus(broker: BrokerProcess) -> dict[tuple[str, str | None], float]:
    """Every sample by its name and client, read as Prometheus reads them."""
    pages = [broker.call(path) for path in ("/metrics", "/metrics/consumers")]
    assert [status for status, _ in pages] == [200, 200]
    families = [one for _, page in pages for one in text_string_to_metric_families(page.decode())]
    return {
        (sample.name, sample.labels.get("client")): sample.value for family in families for sample in family.samples
    }


def test_who_is_disconnected_again_is_readmitted_later(governed: BrokerProcess, name: str) -> None:
    def be_slow(client: Raw, writer: Raw) -> str:
        client.subscribed(TopicRequest(f"lag/{name}", 1))
        for i in range(300):
            writer.publish(f"lag/{name}", b"%d" % i, 1)
        disconnect = client.wait_disconnect()
        assert disconnect.code == 0x97
        return disconnect.reason or ""

    with Raw(governed.port) as writer:
        with Raw(governed.port, name, receive_max=1) as first:
            assert "readmitted" not in be_slow(first, writer)
        with Raw(governed.port, name, receive_max=1) as second:  # the first time costs nothing
            assert "readmitted in 1 s" in be_slow(second, writer)
        assert 0 < governed.get(f"/v1/why/{name}")["readmitted_in_s"] <= 1
        with Raw(governed.port, name, granted=False) as refused:
            fields = refused.connack.fields
            assert refused.connack.code == 0x97
            assert "2 times" in fields.reason_string
            assert 0 < float(dict(fields.user)["retry-after-s"]) <= 1.0
            refused.wait_end()
        with Raw(governed.port, name, 4, granted=False) as old:
            assert old.connack.code == 3
        until(lambda: governed.get(f"/v1/why/{name}")["readmitted_in_s"] == 0)
        with Raw(governed.port, name) as third:
            assert third.connack.code == 0


# -- publishers, subscriptions --------------------------------------------------------------------------------------


def test_blocking_the_publishers(governed: BrokerProcess, name: str) -> None:
    """They are not read any more, so they have to wait; nobody else has to, and nothing is lost."""
    topic = f"block/{name}"
    sent = [b"%06d" % i + b"." * 994 for i in range(20_000)]
    with (
        Raw(governed.port, name, **SMALL) as stuck,
        Raw(governed.port, f"{name}-pub") as writer,
        Raw(governed.port) as other,
        Raw(governed.port) as watcher,
    ):
        watcher.subscribed(f"$SYS/headway/fast_producer/{name}-pub")
        stuck.subscribed(topic)
        frames = [encode_publish(topic, payload) for payload in sent]

        def publish() -> None:
            for frame in frames:
                writer.send(frame)

        writer.sock.settimeout(60)
        publishing = threading.Thread(target=publish, daemon=True)
        publishing.start()
        row = until(lambda: (r := governed.publisher(f"{name}-pub")) and r["paused"] and r)
        assert json.loads(watcher.message().payload)["client"] == f"{name}-pub"
        assert row["published_records"] < len(sent)
        other.subscribed(f"{name}/free")
        other.published(f"{name}/free", b"x")  # other topics go on
        assert other.message().payload == b"x"
        taken = governed.publisher(f"{name}-pub")["published_records"]  # with what the last read had brought
        assert taken < len(sent)
        other.published(f"{name}/free", b"y")
        assert other.message().payload == b"y"
        assert publishing.is_alive()
        assert governed.publisher(f"{name}-pub")["published_records"] == taken
        assert governed.consumer(name)["producer_stall_ms"] >= 0
        assert stuck.payloads(len(sent), 60) == sent
        publishing.join(10)
        assert not publishing.is_alive()
        after = governed.publisher(f"{name}-pub")
        assert (after["paused"], after["published_records"], after["lost_records"]) == (False, len(sent), {})
        assert after["stalled_ms"] > 0
        assert governed.consumer(name)["producer_stall_ms"] > 0


def send_all(sock: socket.socket, data: bytes) -> None:
    """As ``sendall`` does, whose time limit is for all of it: kernels with windows this small may take minutes."""
    rest = memoryview(data)
    while rest:
        rest = rest[sock.send(rest) :]


def test_who_does_not_read_its_answers_is_not_read_either(governed: BrokerProcess, name: str) -> None:
    """Or the broker would have to keep them. Every publish is answered, and refused at some length."""
    count = 50_000
    with Raw(governed.port, name, **SMALL) as writer:
        data = b"".join(encode_publish("$SYS/x", b"." * 400, qos=1, packet_id=1 + i) for i in range(count))
        writer.sock.settimeout(60)
        publishing = threading.Thread(target=send_all, args=(writer.sock, data), daemon=True)
        publishing.start()
        same, last = 0, 0

        def stands_still() -> bool:
            nonlocal same, last
            now = governed.publisher(name).get("refused_records", 0)
            same, last = (same + 1 if now == last else 0), now
            return last > 0 and same > 20

        until(stands_still)
        assert last < count / 2
        assert publishing.is_alive()
        try:
            assert len([writer.expect(PubAck) for _ in range(count)]) == count
        except AssertionError as error:  # seen once, and not explained
            error.add_note(f"{writer.read_bytes} bytes were read; the broker: {governed.publisher(name)}")
            raise
        publishing.join(10)
        assert governed.publisher(name)["refused_records"] == count


def test_a_blocked_publisher_goes_free_when_the_stuck_consumer_vanishes(governed: BrokerProcess, name: str) -> None:
    topic = f"block/{name}"
    with Raw(governed.port, name, **SMALL) as stuck, Raw(governed.port, f"{name}-pub") as writer:
        stuck.subscribed(topic)
        for _ in range(3):
            writer.publish_all(topic, [b"." * 1000] * 300)
            until(lambda: governed.publisher(f"{name}-pub").get("published_records"))
        until(lambda: governed.consumer(name)["slow"])
        number = writer.publish(topic, b"one more", 1)
        until(lambda: governed.publisher(f"{name}-pub")["paused"])
        stuck.close()
        until(lambda: not governed.publisher(f"{name}-pub")["paused"])
        writer.published(topic, b"free")
        assert number


@pytest.mark.parametrize(
    ("action", "kind", "user"), [("close", "close_consumer", ()), ("delete", "deleted", (("lease", "10s"),))]
)
def test_a_consumer_is_asked_to_close_and_a_subscription_deleted(
    governed: BrokerProcess, name: str, action: str, kind: str, user: UserProperties
) -> None:
    topic = f"{action}/{name}"
    with Raw(governed.port, name, receive_max=1) as slow, Raw(governed.port) as writer, Raw(governed.port) as watcher:
        watcher.subscribed(f"$SYS/headway/{kind}/{name}")
        slow.subscribed(TopicRequest(topic, 1), TopicRequest(f"{topic}/other", 0), user=user)
        for i in range(300):
            writer.publish(topic, b"%d" % i, 1)
        assert json.loads(watcher.message().payload)["filter"] == topic
        assert bool(governed.consumer(name, topic)) == (action == "close")
        writer.published(f"{topic}/other", b"x")
        assert b"x" in [m.payload for m in slow.so_far()]  # the connection goes on


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("action", ["ask", "delete"])
def test_nobody_waits_for_ever_for_what_comes_no_more(
    governed: BrokerProcess, name: str, version: int, action: str
) -> None:
    """No packet asks a client to unsubscribe, or tells it that a subscription has ended, and it has no lease."""
    with Raw(governed.port, name, version, **SMALL) as slow, Raw(governed.port) as writer:
        slow.subscribed(f"{action}/{name}", f"other/{name}")
        flood(writer, f"{action}/{name}", 1000)
        until(lambda: governed.verdicts(name))
        if version == 5:
            told = slow.wait_disconnect()
            assert (told.code, told.reason) == (0x97, governed.verdicts(name)[0]["text"])
        else:
            slow.wait_end()
