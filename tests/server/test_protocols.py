"""Protocols say what they are; the journal keeps their dialects, and names none."""

from __future__ import annotations

import pytest

from headway.core.base import ConfigError
from headway.core.clients import SubscriptionTerms
from headway.core.consumer import SubscribeRequest
from headway.core.log import MetadataChange
from headway.core.message import Dialect
from headway.server.amqp.peer import AmqpPeer
from headway.server.journal.entries import decode_metadata, encode_metadata
from headway.server.mqtt.peer import MqttPeer
from headway.server.protocols import DIALECTS, PROTOCOLS, QUEUES, peer_of
from headway.store.journal.segments.batch import StoredEntry
from headway.wire.amqp.dialect import AmqpDialect
from headway.wire.mqtt.dialect import MqttDialect


class Tagged(MqttDialect, frozen=True, tag_field="dialect", tag="tagged"):
    """Another's."""


def again(dialect: Dialect, shared: Dialect | None = None) -> SubscribeRequest:
    """A subscription, as it is after a restart."""
    terms = SubscriptionTerms("client", SubscribeRequest("a/#", dialect, shared, qos=1), 7)
    entry = encode_metadata(MetadataChange(1, "subscription", 3, terms), 0.0)
    data = b"".join(bytes(part) for part in entry.data)
    found = decode_metadata(StoredEntry(entry.kind, 1, 0, data), 0.0).terms
    assert isinstance(found, SubscriptionTerms)
    return found.request


def test_what_they_say_of_themselves() -> None:
    assert (PROTOCOLS["mqtt"].port, PROTOCOLS["amqp"].port) == (1883, 5672)
    assert next(iter(PROTOCOLS)) == "mqtt", "what a listener without one is shown as an example"
    assert AmqpDialect() == QUEUES.dialect
    assert (peer_of("mqtt"), peer_of("amqp")) == (MqttPeer, AmqpPeer)


def test_a_dialect_that_no_protocol_knows_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"the dialect 'tagged'.* \(known are .*\): start the release that wrote"):
        again(Tagged(4, 2))


def test_a_subscription_comes_back_in_the_dialect_it_was_kept_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DIALECTS, "tagged", Tagged)
    for dialect in (MqttDialect(5, 1, 9, offsets=True), Tagged(4, 2)):
        found = again(dialect, dialect)
        assert (type(found.dialect), found.dialect) == (type(dialect), dialect)
        assert (type(found.shared_dialect), found.shared_dialect) == (type(dialect), dialect)
    assert again(MqttDialect(4)).shared_dialect is None
