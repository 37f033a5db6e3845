"""Effects: what the core wants done outside it. The server (or the simulator) carries them out after each turn."""

from __future__ import annotations

from typing import NamedTuple

from headway.core.base import Reason
from headway.core.consumer.channel import Channel
from headway.core.consumer.options import QueueTerms
from headway.core.consumer.outlet import Outlet
from headway.core.consumer.session import Session
from headway.core.consumer.subscription import Subscription
from headway.core.log import Chunk, Lane
from headway.core.message import Record
from headway.core.policy import Verdict


class Disconnect(NamedTuple):
    """Tell the client why, then close. ``rest`` is what is left of a record half sent: it goes first. None: it cannot
    be
    had (a failing disk), so nothing more may be sent."""

    session: Session
    outlet: Outlet
    reason: Reason
    text: str
    rest: bytes | memoryview | None


class CloseConsumer(NamedTuple):
    """Ask the client to end this subscription itself, in its protocol's way."""

    subscription: Subscription
    verdict: Verdict


class Spill(NamedTuple):
    """These chunks of a lane leave memory: what the journal has is there, the rest is to be written, in order, to one
    file; then call ``Broker.spilled``."""

    lane: Lane
    chunks: list[Chunk]


class Pause(NamedTuple):
    """Stop reading from this publisher, and tell it why."""

    session: Session
    why: str


class Resume(NamedTuple):
    """Read from it again."""

    session: Session


class CloseChannel(NamedTuple):
    """Tell the client why, and close one of its channels; the others live on."""

    session: Session
    channel: Channel
    reason: Reason
    text: str


class Cancelled(NamedTuple):
    """The queue this consumer was of is no more, or was taken away from it."""

    subscription: Subscription


class DeadLetter(NamedTuple):
    """A queue left a record out that is to be published anew, to its dead letter exchange."""

    queue: str
    terms: QueueTerms
    record: Record
    reason: Reason


class PluginFailed(NamedTuple):
    """A meter or an action that was plugged in raised something, for the first time."""

    name: str
    error: Exception


Effect = CloseChannel | Cancelled | DeadLetter | Disconnect | CloseConsumer | Spill | Pause | PluginFailed | Resume
