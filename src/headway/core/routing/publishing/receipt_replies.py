"""Receipt replies: closed receipts are sent to where their publishers asked for them, or else as advisories.

An MQTT publisher names a response topic, an AMQP publisher the queue in ``reply-to``. The payload is the same JSON as
that of the advisory. A reply has the QoS of the record, 1 at most, and the publisher's correlation data.
"""

from __future__ import annotations

import msgspec

from headway.core.base import WorkSteps
from headway.core.message import TOPICS, Properties, Run
from headway.core.receipts import Receipt
from headway.core.routing.publishing.advisory import Advisories
from headway.core.routing.publishing.publishing import Publishing
from headway.core.routing.registry import Registry

REPLY_WORK = 3
"""The work of telling a receipt, beside that of publishing the reply. Replies are deferred work (deferred.py)."""


class ReceiptReplies:
    def __init__(self, registry: Registry, publishing: Publishing, advisories: Advisories) -> None:
        self._deferred = registry.deferred
        self._receipts = registry.receipts
        self._publishing = publishing
        self._advisories = advisories
        self._telling = False

    def turn(self, now: float) -> None:
        """Looks at the receipts that are due, and tells those that are closed."""
        self._receipts.turn(now)
        if self._receipts.done and not self._telling:
            self._telling = True
            self._deferred.begin(self._tell_all(), now, client=self)

    def _tell_all(self) -> WorkSteps:
        done = self._receipts.done
        try:
            while done:
                yield REPLY_WORK + self._tell(done.popleft(), self._deferred.now)
        finally:
            self._telling = False

    def _tell(self, receipt: Receipt, now: float) -> int:
        """Returns the work of publishing the reply. A queue that is full refuses it. Without room it is
        dropped, and counted."""
        request, client, figures = receipt.request, receipt.session.client, receipt.figures(now)
        if not request.reply_to:
            run = self._advisories.advisory("receipt", client, **figures)
            if not self._publishing.has_room(run):
                self._publishing.drop("receipt", run)
                return 0
            return self._publishing.announce(run, now)
        payload = msgspec.json.encode({"client": client, **figures})
        properties = Properties(
            payload_format=1, content_type="application/json", correlation_data=request.correlation
        )
        exchange = TOPICS if request.exchange is None else request.exchange
        run = Run(request.reply_to, payload, [len(payload)], [0], None, min(receipt.qos, 1), properties=properties,
                  exchange=exchange)  # fmt: skip
        if not self._publishing.has_room(run):
            self._publishing.drop("receipt", run)
            return 0
        return self._publishing.publish_to(None, run, now).work
