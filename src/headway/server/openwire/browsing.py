"""Browsers: a client of JMS looks at the messages that wait in its queues, and takes none.

It sees those that wait when it begins, the first ``MESSAGES_MAX`` of them and ``BYTES_MAX`` bytes, and then that there
are no more. It settles nothing: what it acknowledges is nobody's. The copies count to the client until they are
written, which happens as fast as the client reads; its other commands wait for that.
"""

from __future__ import annotations

from collections.abc import Callable

from headway.core.queue import Queue
from headway.core.selector import compile_selector
from headway.server.connections import OUT_BYTES_MAX, Steps
from headway.server.openwire.consumer import Consumer
from headway.server.openwire.ports import ClientSide
from headway.wire.openwire.envelope import OpenWireEnvelope
from headway.wire.openwire.replies import write_nothing

MESSAGES_MAX = 400
BYTES_MAX = 4 * 1024 * 1024
COPIED_BYTES = 8192
"""So many bytes that are copied are one unit of work."""
BROWSED = "browsed"
BROWSED_BYTES = 150
"""The memory of a copy of a message, besides its bytes."""


def browse(
    peer: ClientSide, consumer: Consumer, queues: list[Queue], condition: str | None, respond: Callable[[], None]
) -> Steps:
    """Copies what waits in queues, responds, and sends the copies, in steps. Raises :class:`Refused`, before that."""
    selector = None if condition is None else compile_selector(condition)
    envelope = OpenWireEnvelope(consumer.written, f"{peer.granted.number}-{consumer.slot}", peer.wire)
    now, tab, number, held_bytes, left_bytes = peer.engine.now(), peer.granted.tab, 0, 0, BYTES_MAX
    copies: list[tuple[Queue, bytes, int]] = []
    try:
        for queue in queues:
            some = queue.waiting(MESSAGES_MAX - len(copies), left_bytes, now)
            size = sum(len(frame) for frame, _ in some)
            counted = size + BROWSED_BYTES * len(some)
            tab.check(counted)
            tab.add(BROWSED, counted)
            held_bytes, left_bytes = held_bytes + counted, left_bytes - size
            copies += [(queue, *one) for one in some]
            yield 1 + len(some) + size // COPIED_BYTES
            if peer.gone:
                return
        respond()
        copies.reverse()
        while copies:
            while len(peer.connection.out) > OUT_BYTES_MAX and not peer.gone:
                yield 0
            if peer.gone:
                return
            queue, frame, returns = copies.pop()
            counted = len(frame) + BROWSED_BYTES
            tab.add(BROWSED, -counted)
            held_bytes -= counted
            if selector is None or selector.matches(queue.feed.lane.dialect.decode(frame)):
                number += 1
                peer.write(envelope.write(envelope.cut(frame, [len(frame)], redelivered=returns), 0, 1, number))
            yield 1 + len(frame) // COPIED_BYTES
        if not peer.gone:
            peer.write(write_nothing(consumer.written, peer.wire))
    finally:
        tab.add(BROWSED, -held_bytes)
