"""Effects: what the core wants done outside it. The server (or the simulator) carries them out after each turn."""

from __future__ import annotations

from typing import NamedTuple

from headway.core.chunk import Chunk
from headway.core.errors import Reason
from headway.core.lane import Lane
from headway.core.outlet import Outlet
from headway.core.session import Session
from headway.core.subscription import Subscription
from headway.core.verdict import Verdict


class Disconnect(NamedTuple):
    """Tell the client why, then close. ``rest`` is what is left of a record half sent: it goes first. None: it cannot
    be
    had (a failing disk), so nothing more may be sent."""

    session: Session
    outlet: Outlet
    reason: Reason
    text: str
    rest: bytes | None


class CloseConsumer(NamedTuple):
    """Ask the client to end this subscription itself, in its protocol's way."""

    subscription: Subscription
    verdict: Verdict


class Spill(NamedTuple):
    """Write these chunks of a lane, in order, to one file; then call ``Broker.spilled``."""

    lane: Lane
    chunks: list[Chunk]


class Pause(NamedTuple):
    """Stop reading from this publisher."""

    session: Session


class Resume(NamedTuple):
    """Read from it again."""

    session: Session


Effect = Disconnect | CloseConsumer | Spill | Pause | Resume
