"""Answers: how the broker repeats what a client said of a link."""

from __future__ import annotations

from headway.wire.amqp1.performatives import Attach, Coordinator, Source, Target


def answered(attach: Attach) -> Attach:
    """Returns an attach as the broker answers it. A client that resumes a link says which deliveries it has not
    settled; the answer is that the broker knows none of them (2.6.13). What a client had received has gone back to its
    queue, and what it had sent was published or not: it may send that anew."""
    source, target = attach.source, attach.target
    return attach._replace(
        role=not attach.role, snd_settle_mode=attach.snd_settle_mode, rcv_settle_mode=attach.rcv_settle_mode,
        source=source if isinstance(source, Source) else None,
        target=target if isinstance(target, Target | Coordinator) else None,
        unsettled=None if attach.unsettled is None else {}, max_message_size=None,
        initial_delivery_count=None if not attach.role else attach.initial_delivery_count,
        properties=attach.properties if attach.role else None,
    )  # fmt: skip


