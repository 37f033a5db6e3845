"""A durable subscription that is replaced again and again: its place in the journal and its backfills have an end."""

from __future__ import annotations

from random import Random

import pytest
from bench.wires.packets import encode_publish
from tests.core.stage import SHARED
from tests.server.journal_stage import JournalStage, Publisher
from tests.sim.outlet import PretendedOutlet

from headway.core.base.errors import Refused
from headway.core.clients.subscriptions import BACKFILLS_MAX
from headway.core.consumer.request import ConnectRequest, SubscribeRequest, parse_options
from headway.core.consumer.session import Session
from headway.wire.mqtt.decoder import MqttDecoder
from headway.wire.mqtt.dialect import MqttDialect
from headway.wire.mqtt.packets import Publish

TIMES = 400


class Durable:
    """A client that subscribes to ``rec/a`` from the earliest record on, each time in other words."""

    def __init__(self, stage: JournalStage, capacity: int) -> None:
        self.stage = stage
        self.outlet = PretendedOutlet(stage.now, capacity, Random(1), 0.0, lambda data: None)
        request = ConnectRequest("durable", "", False, 3600.0, protocol="mqtt5")
        self.session: Session = stage.broker.connect(request, self.outlet, stage.now)

    def subscribe(self, identifier: int) -> None:
        options = parse_options([("from", "earliest")])
        request = SubscribeRequest("rec/a", MqttDialect(5, 1, identifier), SHARED, 1, options=options)
        self.stage.broker.subscribe(self.session, request, self.stage.now)

    def acknowledge_all(self) -> None:
        for delivery_id in list(self.session.channel.in_flight):
            self.stage.broker.acknowledge(self.session, delivery_id, self.stage.now)


@pytest.fixture
def stage() -> JournalStage:
    made = JournalStage(config='[[topic]]\nfilter = "rec/#"\nkeep = "7d"\n')
    for number in range(3):
        packet = encode_publish("rec/a", b"%d" % number, version=5, qos=1, packet_id=1)
        (item,) = MqttDecoder(role="client", version=5).feed(b"\x20\x03\0\0\0" + packet)[1:]
        assert isinstance(item, Publish)
        made.broker.publish(None, [item.run], made.now)
        made.turn()
    made.declare("q")
    return made


def test_its_place_has_an_end_and_everybody_is_still_confirmed(stage: JournalStage) -> None:
    durable, publisher = Durable(stage, 10**9), Publisher(stage)
    for number in range(1, TIMES):
        durable.subscribe(number)
        stage.turn()
        durable.acknowledge_all()
        publisher.publish("q", number)
        stage.turn()
    assert publisher.told == list(range(1, TIMES))
    (subscription,) = durable.session.subscriptions.values()
    assert subscription.cursor.durable_position.durable
    assert subscription.cursor.durable_position.cursors == [subscription.cursor]
    assert durable.outlet.taken > TIMES * 3 * 10, "it was given the records each time"


def test_who_reads_nothing_is_refused_at_last_and_everybody_else_confirmed(stage: JournalStage) -> None:
    durable, publisher = Durable(stage, 0), Publisher(stage)
    refused = 0
    for number in range(1, TIMES):
        try:
            durable.subscribe(number)
        except Refused:
            refused += 1
        publisher.publish("q", number)
        stage.turn()
    assert publisher.told == list(range(1, TIMES))
    (subscription,) = durable.session.subscriptions.values()
    assert len(subscription.backfills) <= BACKFILLS_MAX + 2
    assert refused >= TIMES - BACKFILLS_MAX - 2
    assert len(stage.broker.registry.router.feeds) <= BACKFILLS_MAX + 4, "nor are there more lanes"
