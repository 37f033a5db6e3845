"""Reasons and errors: every outcome has one enumerated reason, and the same word for it everywhere.

A :class:`Reason` appears on the wire, in the log, in metrics, in the admin API and in telemetry columns. The type of an
error says who is at fault and whether the connection survives; the codec turns it into a reply of its protocol.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Reason(StrEnum):
    """Why something ended, was skipped, or was refused."""

    # A connection ended in the ordinary way.
    NORMAL = "normal"
    CLIENT_GONE = "client_gone"
    KEEP_ALIVE = "keep_alive"
    TAKEN_OVER = "taken_over"
    SHUTDOWN = "shutdown"
    ADMIN = "admin"
    INTERNAL_ERROR = "internal_error"
    # The client's fault.
    PROTOCOL_ERROR = "protocol_error"
    MALFORMED = "malformed"
    PACKET_TOO_LARGE = "packet_too_large"
    NOT_AUTHORIZED = "not_authorized"
    TOO_MANY_CONNECTIONS = "too_many_connections"
    TOO_MANY_SUBSCRIPTIONS = "too_many_subscriptions"
    USER_LIMIT = "user_limit"
    TOO_MANY_QUEUES = "too_many_queues"
    NOT_FOUND = "not_found"
    RESOURCE_LOCKED = "resource_locked"
    PRECONDITION_FAILED = "precondition_failed"
    NOT_ALLOWED = "not_allowed"
    CONNECT_TIMEOUT = "connect_timeout"
    CREDIT_EXCEEDED = "credit_exceeded"
    # A consumer could not keep up.
    LAG_RECORDS = "lag_records"
    LAG_BYTES = "lag_bytes"
    LAG_AGE = "lag_age"
    DRAIN_RATE = "drain_rate"
    BLOCKED = "blocked"
    CREDIT_EXHAUSTED = "credit_exhausted"
    SLOW_COUNT = "slow_count"
    ACK_AGE = "ack_age"
    SLOW_FRACTION = "slow_fraction"
    POOL_SHARE = "pool_share"
    PLUGIN = "plugin"
    MEMORY_LIMIT = "memory_limit"
    DISK_LIMIT = "disk_limit"
    CLIENT_SHARE = "client_share"
    CLIENT_MEMORY = "client_memory"
    SPILL_FAILED = "spill_failed"
    FLAPPING = "flapping"
    # Records skipped.
    CONFLATED = "conflated"
    DISCARDED = "discarded"
    EXPIRED = "expired"
    TOO_LARGE_FOR_CLIENT = "too_large_for_client"
    SUBSCRIPTION_ENDED = "subscription_ended"
    LEASE_EXPIRED = "lease_expired"
    NOT_RETAINED = "not_retained"
    QUEUE_LENGTH = "queue_length"
    REJECTED = "rejected"
    DELIVERY_LIMIT = "delivery_limit"
    DEAD_LETTER_CYCLE = "dead_letter_cycle"
    PURGED = "purged"
    UNACKNOWLEDGED = "unacknowledged"


class Cause(StrEnum):
    """Likely place of the trouble, as the meters see it."""

    NETWORK = "network"
    APPLICATION = "application"
    OVER_SUBSCRIPTION = "over_subscription"
    PRODUCER_BURST = "producer_burst"
    BROKER = "broker"
    OPERATOR = "operator"
    """Nowhere: somebody asked for what was done."""


class HeadwayError(Exception):
    """Base class of all errors that Headway raises on purpose."""


class ConfigError(HeadwayError):
    """Mistakes of the operator: shown as one clear line each; the process exits with 2."""


class Mistakes:
    """Collects the mistakes of one table, so that a config is corrected in one go and not one mistake at a time."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def attempt(self, parse: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Returns what ``parse`` returns; None if it raises a ConfigError, whose lines are kept."""
        try:
            return parse(*args, **kwargs)
        except ConfigError as error:
            self.lines += str(error).splitlines()
            return None

    def check(self, where: str = "") -> None:
        """Raises a ConfigError with all lines, each after ``where``, if there are any."""
        if self.lines:
            raise ConfigError("\n".join(where + line for line in self.lines))


class ProtocolError(HeadwayError):
    """The client broke its protocol. Its connection ends; no other client is affected."""

    def __init__(self, text: str, *, reason: Reason = Reason.MALFORMED, code: int = 0) -> None:
        super().__init__(text)
        self.reason = reason
        self.code = code
        """Code in the client's protocol (an MQTT 5 reason code, say); 0: the codec derives it from the reason."""


class Refused(HeadwayError):
    """A command that cannot be granted. The caller of the command decides whether the connection survives."""

    def __init__(self, reason: Reason, text: str, *, retry_after_s: float = 0.0) -> None:
        super().__init__(text)
        self.reason = reason
        self.retry_after_s = retry_after_s
