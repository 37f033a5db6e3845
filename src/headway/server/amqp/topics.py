"""Consumers of topics: ``basic.consume`` of ``amq.topic`` itself, where the name of a queue stands otherwise.

The argument ``x-headway-topics`` is a binding key: the topics that it matches are read; without it, all. A queue hands
each record to one consumer, in turn. A consumer of topics reads them for itself, as an MQTT subscriber does, so it can
be conflated, begin with the state, and select records. It acknowledges nothing. There is no queue, and nothing is
declared. To consume again under the same tag, on the same terms, renews the lease.
"""

from __future__ import annotations

from pamqp import commands

from headway.core.base import Reason, Refused
from headway.core.consumer import PREFIX, SubscribeRequest, Subscription, SubscriptionOptions
from headway.core.message import topic_of
from headway.server.amqp.channel import AmqpChannel
from headway.server.amqp.faults import ChannelFault
from headway.wire.amqp.dialect import AmqpDialect
from headway.wire.amqp.envelope import AmqpEnvelope

KEY = f"{PREFIX}topics"
"""The argument with the binding key."""


def filter_of(key: object) -> str:
    """Returns the filter of a binding key. Raises :class:`Refused`."""
    if not isinstance(key, str):
        raise Refused(Reason.PROTOCOL_ERROR, f"{KEY} takes a text, a binding key such as flights.*.late")
    words = key.split(".")
    if key.startswith("$") and words[0] != "$SYS":
        raise Refused(Reason.PROTOCOL_ERROR, f"{KEY}={key!r}: there are no topics whose names begin with {words[0]}")
    for number, word in enumerate(words, 1):
        if word == "#" and number < len(words):
            raise Refused(Reason.PROTOCOL_ERROR, f"{KEY}={key!r}: '#' stands at the end of the key")
        if word not in ("#", "*") and any(wildcard in word for wildcard in "#*+"):
            text = f"{KEY}={key!r}: a binding key has a dot between its words, as in flights.*.late"
            raise Refused(Reason.PROTOCOL_ERROR, text)
    return "/".join("+" if word == "*" else topic_of(word) for word in words)


def consume_topics(
    channel: AmqpChannel, command: commands.Basic.Consume, tag: str, key: object, options: SubscriptionOptions
) -> Subscription:
    """Begins or renews a consumer of topics. Raises :class:`ChannelFault`, :class:`Refused`."""
    if not command.no_ack:
        raise ChannelFault("a consumer of topics acknowledges nothing: consume with no_ack (auto_ack=True)")
    if command.exclusive:
        raise ChannelFault("a consumer of topics cannot be exclusive: each reads the topics for itself")
    request = SubscribeRequest(
        filter_of(key), AmqpDialect(topics=True, offsets=options.offsets), send_retained="never", options=options,
        name=(channel.number, tag), envelope=AmqpEnvelope(channel.number, tag, channel.peer.frame_bytes_max),
    )  # fmt: skip
    return channel.queues.consume_topics(channel.session, channel.core, request, channel.now())
