"""Advisories: the broker publishes events of clients, as records on ``$SYS/headway/KIND/CLIENT``.

Kinds: ``slow``, ``recovered`` (no longer slow), ``gap`` (records were skipped: how many, which, why), ``offlined``,
``online``, ``close_consumer`` (asks the client to end a subscription), ``deleted`` (the subscription was ended),
``disconnected``, ``returned`` (records whose acknowledgement took too long went back to their queue), ``told`` (what a
plug-in has to say), ``fast_producer`` (the client is not read, because of a slow consumer or a full pool), ``receipt``
(what became of a record). The payload is JSON. Advisories are not retained: clients that want them subscribe.
"""

from __future__ import annotations

import msgspec

from headway.core.message import Properties, Record
from headway.core.routing.publishing.publishing import Publishing

PREFIX = "$SYS/headway/"
_JSON = Properties(payload_format=1, content_type="application/json")
_ESCAPES = str.maketrans({"/": "%2F", "+": "%2B", "#": "%23", "%": "%25"})


class Advisories:
    def __init__(self, publishing: Publishing) -> None:
        self._publishing = publishing
        self.count = 0

    def tell(self, kind: str, client: str, now: float, **details: object) -> None:
        """Publishes an advisory about a client. The client's name is one level of the topic, percent-escaped."""
        self.count += 1
        payload = msgspec.json.encode({"client": client, **details})
        topic = f"{PREFIX}{kind}/{client.translate(_ESCAPES)}"
        self._publishing.announce(Record(topic, payload, _JSON), now)
