"""Cutting closes the channel or the connection of a consumer that costs others too much.

A cut takes far longer than a look. So at most ``CUTS_MAX`` consumers are cut in a turn, and the others in the next
turns. One that is far behind counts as several.
"""

from __future__ import annotations

from headway.core.base import Reason
from headway.core.clients import Admission, Queues
from headway.core.consumer import CloseChannel, Revoked, Session, Subscription
from headway.core.log import CHUNK_BYTES
from headway.core.policy import FlapControl
from headway.core.queue import queue_behind
from headway.core.routing import Advisories, Registry

CUTS_MAX = 32
CUT_BYTES = 64 * CHUNK_BYTES
"""So much that a consumer has not read takes the time of a cut, for each of its chunks is visited."""


class Cutter:
    def __init__(
        self, registry: Registry, admission: Admission, queues: Queues, advisories: Advisories, flap: FlapControl
    ) -> None:
        self._registry = registry
        self._admission = admission
        self._queues = queues
        self._advisories = advisories
        self._flap = flap
        self.cuts_left = CUTS_MAX
        """The number of consumers that may still be cut in this turn."""

    def begin_turn(self) -> None:
        self.cuts_left = CUTS_MAX

    def count(self, subscription: Subscription) -> None:
        """Takes the end of a consumer off the cuts that are left in this turn."""
        of_lane = queue_behind(subscription) is None
        self.cuts_left -= 1 + (subscription.gating_bytes // CUT_BYTES if of_lane else 0)

    def cut(
        self, subscription: Subscription, reason: Reason, text: str, now: float, *, connection: bool = False
    ) -> None:
        """Closes the consumer's channel if its client has consumers on other channels, else the connection.
        ``connection``: in any case."""
        session, channel = subscription.session, subscription.channel
        self.count(subscription)
        own = (channel, session.channel)  # outside of its channels a client has only what its library follows
        alone = connection or channel is session.channel
        if alone or all(other.channel in own for other in session.subscriptions.values()):
            self.disconnect(session, reason, text, now)
            return
        self._flap.strike(session.client, now)
        self._queues.close_channel(session, channel, now)
        self._registry.effects.append(CloseChannel(session, channel, reason, text))
        self._advisories.tell("disconnected", session.client, now, reason=reason, text=text, channel=channel.number)

    def end_broken(self, broken: list[tuple[Subscription, str]], now: float) -> None:
        """Ends those whose live queries cannot go on, and tells them why. It is not their fault."""
        for subscription, why in broken:
            session = subscription.session
            if subscription.ended or subscription.gone:
                continue
            text = f"what it has asked to be kept of the state of {subscription.filter} is kept no more: {why}"
            if subscription.has_channel:
                subscription.let_flow(False)
                self._registry.effects.append(Revoked(subscription, text, Reason.CLIENT_MEMORY))
                self._advisories.tell("close_consumer", session.client, now, filter=subscription.filter, text=text)
            else:
                self._admission.expel(session, Reason.CLIENT_MEMORY, text, now)

    def end_stream(self, session: Session, reason: Reason, text: str, now: float) -> None:
        """Ends the connection of a client whose one subscription ends."""
        self._admission.expel(session, reason, text, now)

    def disconnect(self, session: Session, reason: Reason, text: str, now: float) -> None:
        """Disconnects a client that costs others too much. A durable session keeps its subscriptions."""
        if not session.connected:
            return
        shut_out_s = self._flap.strike(session.client, now)
        if shut_out_s:
            text += f"; readmitted in {shut_out_s:g} s"
        self._admission.expel(session, reason, text, now)
        self._advisories.tell("disconnected", session.client, now, reason=reason, text=text)
