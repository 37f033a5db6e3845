"""A receipt request: a publisher asks what became of one record. Each protocol has its own way to carry the request.

A request that cannot be understood has a ``fault``. The record is published all the same, and the publisher is told the
fault instead of the figures.
"""

from __future__ import annotations

import msgspec

from headway.core.base import ConfigError, parse_duration

DEFAULT_WAIT_S = 30.0
WAIT_MAX_S = 3600.0
"""The longest time; a request for more gets this."""
_PLAIN = {"", "true", "yes", "on"}
_TAKES = "it takes a duration such as 30s, or true"


class ReceiptRequest(msgspec.Struct, frozen=True):
    wait_s: float = DEFAULT_WAIT_S
    """The receipt is given after this time, even if consumers have not settled the record by then."""
    reply_to: str = ""
    """The topic of the receipt; empty: the receipt is an advisory."""
    exchange: str | None = None
    """The exchange that the receipt is published to, under the routing key of ``reply_to``; None: to the topic."""
    correlation: bytes | None = None
    """Sent back with the receipt."""
    fault: str = ""

    @property
    def size(self) -> int:
        """Memory in bytes, without the object itself."""
        return len(self.reply_to) + len(self.correlation or b"") + len(self.fault)


def receipt_request(
    value: object, *, reply_to: str = "", exchange: str | None = None, correlation: bytes | None = None
) -> ReceiptRequest:
    """Returns the request that a property with this value makes."""
    wait_s, fault = DEFAULT_WAIT_S, ""
    if isinstance(value, str) and value.strip().lower() not in _PLAIN:
        try:
            wait_s = min(parse_duration(value), WAIT_MAX_S)
            if not wait_s:
                fault = f"receipt={value[:40]!r}: a receipt needs some time; {_TAKES}"
        except ConfigError as error:
            fault = f"receipt={value[:40]!r}: {error}; {_TAKES}"
    elif not isinstance(value, str) and value is not True:
        fault = f"receipt is of the type {type(value).__name__}; {_TAKES}, as text"
    if exchange is None and reply_to.startswith("$"):
        reply_to, fault = "", "topics that start with $ are the broker's own, so no receipt can be sent there"
    return ReceiptRequest(wait_s, reply_to, exchange, correlation, fault)
