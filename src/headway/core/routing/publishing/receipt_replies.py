"""Receipt replies: closed receipts are sent to where their publishers asked for them, or else as advisories.

An MQTT publisher names a response topic, an AMQP publisher the queue in ``reply-to``. The payload is the same JSON as
that of the advisory. A reply has the QoS of the record, 1 at most, and the publisher's correlation data.
"""

from __future__ import annotations

import msgspec

from headway.core.base import Refused
from headway.core.message import TOPICS, Properties, Run
from headway.core.receipts import Receipt
from headway.core.routing.publishing.advisory import Advisories
from headway.core.routing.publishing.publishing import Publishing
from headway.core.routing.registry import Registry

REPLIES_MAX = 512
"""Receipts that are told in one turn."""


class ReceiptReplies:
    def __init__(self, registry: Registry, publishing: Publishing, advisories: Advisories) -> None:
        self._receipts = registry.receipts
        self._publishing = publishing
        self._advisories = advisories

    def turn(self, now: float) -> None:
        """Looks at the receipts that are due, and tells those that are closed."""
        self._receipts.turn(now)
        done = self._receipts.done
        for _ in range(min(REPLIES_MAX, len(done))):
            self._tell(done.popleft(), now)

    def _tell(self, receipt: Receipt, now: float) -> None:
        request, client, figures = receipt.request, receipt.session.client, receipt.figures(now)
        if not request.reply_to:
            self._advisories.tell("receipt", client, now, **figures)
            return
        payload = msgspec.json.encode({"client": client, **figures})
        properties = Properties(
            payload_format=1, content_type="application/json", correlation_data=request.correlation
        )
        exchange = TOPICS if request.exchange is None else request.exchange
        run = Run(request.reply_to, payload, [len(payload)], [0], None, min(receipt.qos, 1), properties=properties,
                  exchange=exchange)  # fmt: skip
        try:
            self._publishing.publish_to(None, run, now)
        except Refused:
            return  # a queue is full
