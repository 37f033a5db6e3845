"""Browsers: a client of JMS looks at the messages that wait in a queue, and takes none.

It sees those that wait when it begins, the first ``MESSAGES_MAX`` of them, and then that there are no more. It settles
nothing: what it acknowledges is nobody's.
"""

from __future__ import annotations

from headway.core.queue import Queue
from headway.core.selector import compile_selector
from headway.server.connections import Steps
from headway.server.openwire.consumer import Consumer
from headway.server.openwire.ports import ClientSide
from headway.wire.openwire.envelope import OpenWireEnvelope
from headway.wire.openwire.replies import write_nothing

MESSAGES_MAX = 400
BYTES_MAX = 4 * 1024 * 1024
PORTION = 32


def browse(peer: ClientSide, consumer: Consumer, queues: list[Queue], condition: str | None) -> Steps:
    """Sends what waits in queues to a browser, in steps."""
    selector = None if condition is None else compile_selector(condition)
    envelope = OpenWireEnvelope(consumer.written, f"{peer.granted.number}-{consumer.slot}", peer.wire)
    now, left, number = peer.engine.now(), MESSAGES_MAX, 0
    for queue in queues:
        waiting = queue.waiting(left, BYTES_MAX, now)
        left -= len(waiting)
        for at in range(0, len(waiting), PORTION):
            for frame, returns in waiting[at : at + PORTION]:
                if selector is None or selector.matches(queue.feed.lane.dialect.decode(frame)):
                    number += 1
                    peer.write(envelope.write(envelope.cut(frame, [len(frame)], redelivered=returns), 0, 1, number))
            yield PORTION
            if peer.gone:
                return
    peer.write(write_nothing(consumer.written, peer.wire))
