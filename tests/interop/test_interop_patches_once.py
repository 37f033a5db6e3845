"""Patches (the property ``merge``) published exactly once: none is lost or merged twice, whatever is killed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.interop.conftest import BrokerFactory
from tests.interop.process import LISTENER
from tests.interop.raw import Raw
from tests.interop.view_stories import TOPIC

from headway.core.message.record import Properties
from headway.wire.mqtt.packets import PubComp, PubRec, TopicRequest

PATCH = Properties(user=(("merge", "true"),))
WHOLE, CHANGED = b'{"tailnum":"N1","delay":1,"dest":"LAX"}', b'{"tailnum":"N1","delay":2,"dest":"LAX"}'
PUBLISHER = {"clean_start": False, "session_expiry_s": 3600}


@pytest.mark.parametrize("released", [False, True])
def test_a_patch_whose_broker_is_killed_is_merged_once(start: BrokerFactory, tmp_path: Path, released: bool) -> None:
    """The subscriber is away all the time. The topic is not recorded, so the broker that comes back has no state of it:
    a patch that it took for a new one would be refused."""
    config = f'{LISTENER}{TOPIC}[journal]\npath = "{tmp_path / "journal"}"\n'
    broker = start(config)
    with Raw(broker.port, "away", **PUBLISHER) as away:
        away.subscribed(TopicRequest("flights/#", 2))
    with Raw(broker.port, "publisher", **PUBLISHER) as publisher:
        publisher.published("flights/a", WHOLE)
        number = publisher.publish("flights/a", b'{"tailnum":"N1","delay":2}', 2, properties=PATCH)
        assert publisher.expect(PubRec).code == 0
        if released:
            publisher.rel(number)
            publisher.expect(PubComp)
        broker.kill()
    broker = start(config)
    with Raw(broker.port, "publisher", **PUBLISHER) as publisher:
        if not released:
            publisher.next_id = number - 1
            publisher.publish("flights/a", b'{"tailnum":"N1","delay":2}', 2, properties=PATCH, dup=True)
            assert publisher.expect(PubRec).code == 0
            publisher.rel(number)
            publisher.expect(PubComp)
        publisher.published("flights/end", b'{"tailnum":"N2"}')
    with Raw(broker.port, "away", **PUBLISHER) as away:
        found = [(message.topic, message.payload) for message in away.messages(3)]
    assert found == [("flights/a", WHOLE), ("flights/a", CHANGED), ("flights/end", b'{"tailnum":"N2"}')]


def test_a_patch_that_is_refused_leaves_its_id_free(start: BrokerFactory, tmp_path: Path) -> None:
    broker = start(f'{LISTENER}{TOPIC}[journal]\npath = "{tmp_path / "journal"}"\n')
    with Raw(broker.port, "watcher") as watcher, Raw(broker.port, "publisher", **PUBLISHER) as publisher:
        watcher.subscribed(TopicRequest("flights/#", 1))
        number = publisher.publish("flights/a", b'{"tailnum":"N1","delay":2}', 2, properties=PATCH)
        assert publisher.expect(PubRec).code == 0x83
        publisher.next_id = number - 1
        assert publisher.publish("flights/a", WHOLE, 2) == number
        assert publisher.expect(PubRec).code == 0
        publisher.rel(number)
        publisher.expect(PubComp)
        assert watcher.message().payload == WHOLE
