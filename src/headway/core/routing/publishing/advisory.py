"""Advisories: the broker publishes events of clients, as records on ``$SYS/headway/KIND/CLIENT``.

Kinds: ``slow``, ``recovered`` (no longer slow), ``gap`` (records were skipped: how many, which, why), ``offlined``,
``online``, ``close_consumer`` (asks the client to end a subscription), ``deleted`` (the subscription was ended),
``disconnected``, ``returned`` (records whose acknowledgement took too long went back to their queue), ``told`` (what a
plug-in has to say), ``fast_producer`` (the client is not read, because of a slow consumer or a full pool), ``receipt``
(what became of a record). The payload is JSON. Advisories are not retained: clients that want them subscribe. If those
are very many, the advisories that are too much work for one turn wait for the next ones, in order.
"""

from __future__ import annotations

import msgspec

from headway.core.message import Properties, Record, Run
from headway.core.routing.publishing.publishing import Publishing, advisory_topic

_JSON = Properties(payload_format=1, content_type="application/json")


class Advisories:
    def __init__(self, publishing: Publishing) -> None:
        self._publishing = publishing
        self._deferred = publishing.deferred
        self.count = 0

    @property
    def waiting(self) -> int:
        """How many advisories wait for the turns to come."""
        return len(self._deferred.begun.get(self, ()))

    def advisory(self, kind: str, client: str, **details: object) -> Run:
        """Returns an advisory about a client."""
        self.count += 1
        payload = msgspec.json.encode({"client": client, **details})
        return Record(advisory_topic(kind, client), payload, _JSON).run()

    def tell(self, kind: str, client: str, now: float, **details: object) -> None:
        """Publishes an advisory. If very many get it, others wait for the turns to come, in order."""
        self._publishing.announce_soon(self.advisory(kind, client, **details), now, self)
