"""Names as the console shows them: cut, and with a key of fixed length by which a page names a consumer."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections import OrderedDict
from hashlib import blake2b
from typing import NamedTuple

from headway.core.consumer import Subscription
from headway.core.routing import Registry

NAME_CHARS_MAX = 200
"""Clients choose their names, up to 64 kB of anything; a page gets the beginning."""
TEXT_CHARS_MAX = 700
KNOWN_MAX = 2000
KNOWN_CHARS_MAX = 4_000_000
_KEY_BYTES = 9


class Name(NamedTuple):
    """The names of one consumer: those of its client, its filter, and its channel and tag (or nothing)."""

    client: str
    filter: str
    consumer: str

    @property
    def chars(self) -> int:
        return len(self.client) + len(self.filter) + len(self.consumer)

    @property
    def key(self) -> str:
        whole = "\0".join(self).encode(errors="surrogatepass")
        return urlsafe_b64encode(blake2b(whole, digest_size=_KEY_BYTES).digest()).decode()


def name_of(subscription: Subscription) -> Name:
    return Name(subscription.session.client, subscription.filter, subscription.request.label)


def cut(text: str, most: int = NAME_CHARS_MAX) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


class Known:
    """The consumers that pages were told of, by key: the latest ``KNOWN_MAX``, fewer where names are long."""

    def __init__(self) -> None:
        self._names: OrderedDict[str, Name] = OrderedDict()
        self.chars = 0

    def key(self, name: Name) -> str:
        key = name.key
        if key not in self._names:
            self.chars += name.chars
        self._names[key] = name
        self._names.move_to_end(key)
        while len(self._names) > KNOWN_MAX or (self.chars > KNOWN_CHARS_MAX and len(self._names) > 1):
            self.chars -= self._names.popitem(last=False)[1].chars
        return key

    def find(self, key: str) -> Name | None:
        return self._names.get(key)


def consumer_of(registry: Registry, name: Name) -> Subscription | None:
    """Returns the consumer of this name; None if there is none any more."""
    theirs = registry.subscriptions_of(name.client)
    first = theirs.get(name.filter)
    if first is not None and name_of(first) == name:
        return first
    return next((one for one in theirs.values() if name_of(one) == name), None)
