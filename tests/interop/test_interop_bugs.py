"""A bug of ours costs one client its connection, and nobody else anything: the log has it, and the broker goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.interop import process
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw
from tests.interop.records import recording
from tests.interop.test_interop_writers import plain, publish, recorded, stage

from headway.cli import main
from headway.core.consumer.subscription import Subscription
from headway.core.delivery import fanout
from headway.core.delivery.rendering import Copied
from headway.core.message.record import EncodedRun, Run
from headway.wire.mqtt.dialect import MqttDialect
from headway.wire.mqtt.packets import TopicRequest

ALL = TopicRequest("t/#", 1)
TOPICS = '[[topic]]\nfilter = "t/#"\nkeep = "7d"\n'


def serve_with_bugs() -> None:
    """It cannot send the client "victim" anything, and cannot write the payload "bug" for MQTT 3."""

    def render(subscription: Subscription, *more: Any) -> int:
        if subscription.session.client == "victim":
            raise RuntimeError("a bug in a delivery")
        return real_render(subscription, *more)

    def encode(self: MqttDialect, run: Run, first: int) -> EncodedRun:
        if self.version == 4 and run.payload(0) == b"bug":
            raise RuntimeError("a bug in a publish")
        return real_encode(self, run, first)

    def number(self: Copied, subscription: Subscription, now: float) -> bytearray | None:
        if subscription.session.client == "victim":
            raise RuntimeError("a bug in a delivery")
        return real_number(self, subscription, now)

    real_render, real_encode, real_number = fanout.render, MqttDialect.encode, Copied.number
    fanout.render, MqttDialect.encode = render, encode  # type: ignore[assignment, method-assign]
    Copied.number = number  # type: ignore[method-assign]
    main()


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BrokerProcess]:
    monkeypatch.setattr(process, "main", serve_with_bugs)
    broker = BrokerProcess(tmp_path, recording(tmp_path / "journal", TOPICS))
    yield broker
    broker.kill()


def test_client_that_nothing_can_be_written_for_is_disconnected_alone(broker: BrokerProcess) -> None:
    with (
        Raw(broker.port, "victim").subscribed(ALL) as victim,
        Raw(broker.port, "other").subscribed(ALL) as other,
        Raw(broker.port, "publisher") as publisher,
    ):
        for number in range(3):
            publisher.published("t/1", b"%d" % number)
        assert [one.payload for one in other.messages(3)] == [b"0", b"1", b"2"]
        victim.wait_disconnect()
    assert broker.log.read_text().count("RuntimeError: a bug in a delivery") == 1
    assert [row["payload"] for row in recorded(broker, "t/1")] == [b"0", b"1", b"2"]


def test_bug_in_a_publish_is_told_to_the_publisher_and_wedges_nobody(broker: BrokerProcess, tmp_path: Path) -> None:
    """Over MQTT and by a batch; also after a restart, which meets the same bug."""
    with (
        Raw(broker.port, "away", version=4, clean_start=False) as away,
        Raw(broker.port, "other").subscribed(ALL) as other,
    ):
        away.subscribed(ALL)
        with Raw(broker.port, "publisher") as publisher:
            publisher.publish("t/1", b"bug", qos=1)
            publisher.wait_disconnect()
        parts = [stage(broker, "w", plain("t/2", [payload])) for payload in (b"bug", b"2")]
        answer = publish(broker, "w", 1, *parts)
        assert answer["refused"] == "rows 0 to 0 did not reach all consumers: internal error: a bug in a publish"
        publish(broker, "w", 2, stage(broker, "w", plain("t/3", [b"3"])))
        assert [one.payload for one in other.messages(4)] == [b"bug", b"bug", b"2", b"3"]
        assert [one.payload for one in away.messages(2)] == [b"2", b"3"]
    broker.kill()
    (tmp_path / "again").mkdir()
    again = BrokerProcess(tmp_path / "again", recording(tmp_path / "journal", TOPICS))
    try:
        assert again.get("/v1/broker")["journal"]["set_aside"] == 0, "nobody waits for it"
        assert [row["payload"] for row in recorded(again, "t/#")] == [b"bug", b"bug", b"2", b"3"]
    finally:
        again.kill()
