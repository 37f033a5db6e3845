"""Effects: actions outside of the core. The server (or the simulator) carries them out after each turn."""

from __future__ import annotations

from typing import NamedTuple

from headway.core.base import Reason
from headway.core.consumer.channel import Channel
from headway.core.consumer.connection import Outlet
from headway.core.consumer.request import QueueTerms
from headway.core.consumer.session import Session
from headway.core.consumer.subscription import Subscription
from headway.core.log import Chunk, Lane
from headway.core.message import Record
from headway.core.policy import Verdict


class Disconnect(NamedTuple):
    """Send the rest of a half-sent record, tell the client why, and close. ``rest`` is None where it cannot be read
    (failing disk): then nothing more may be sent."""

    session: Session
    outlet: Outlet
    reason: Reason
    text: str
    rest: bytes | memoryview | None


class CloseConsumer(NamedTuple):
    """Ask the client to end this subscription itself, in its protocol's way."""

    subscription: Subscription
    verdict: Verdict
    deletes: bool = False
    """Whether it ends also where the protocol has no word for that."""


class Spill(NamedTuple):
    """Write these chunks of a lane to one file, in order, and call ``Broker.spilled`` for each. A chunk that is in the
    journal is not written; it only leaves memory."""

    lane: Lane
    chunks: list[Chunk]


class Pause(NamedTuple):
    """Stop reading from this publisher, and tell it why. ``outlet``: its connection; one that has taken the session
    over since then has not been paused."""

    session: Session
    outlet: Outlet
    why: str


class Resume(NamedTuple):
    """Read from this publisher again."""

    session: Session


class CloseChannel(NamedTuple):
    """Tell the client why, and close one of its channels. The others stay open."""

    session: Session
    channel: Channel
    reason: Reason
    text: str


class Cancelled(NamedTuple):
    """Tell the client that its consumer was cancelled: its queue was deleted or taken away from it. Or, to one that is
    told of all ends, that its subscription has ended."""

    subscription: Subscription
    reason: Reason = Reason.SUBSCRIPTION_ENDED
    """``LEASE_EXPIRED``: its client did not renew it. ``NORMAL``: it was a query, whose answer is sent."""


class Revoked(NamedTuple):
    """End a consumer, and tell its client why: it may not be read any more (``NOT_AUTHORIZED``), or cannot be."""

    subscription: Subscription
    text: str
    reason: Reason = Reason.NOT_AUTHORIZED


class DeadLetter(NamedTuple):
    """Publish a record that a queue gave up to the queue's dead letter exchange."""

    queue: str
    terms: QueueTerms
    record: Record
    reason: Reason


class PluginFailed(NamedTuple):
    """Log that a plugged-in meter or action raised an exception, for the first time."""

    name: str
    error: Exception


class DeliveryFailed(NamedTuple):
    """Log that records could not be written for a client, which is a bug of ours, and close its connection alone."""

    session: Session
    outlet: Outlet
    error: Exception


Effect = (
    CloseChannel | Cancelled | DeadLetter | DeliveryFailed | Disconnect | CloseConsumer | Spill | Pause | PluginFailed
    | Resume | Revoked
)
