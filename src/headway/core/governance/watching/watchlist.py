"""The watchlist is the consumers that the governor looks at, and the lateness of its looks.

A consumer is watched from the time it falls behind until it has caught up and all its rules have stepped back.

One that stands still for longer than ``STILL_S`` *rests* between two looks, for up to ``REST_S``: another look would
find nothing new but a longer lag. A rest ends at once if the outlet takes something. Nobody rests whose policy does
more than tell, or while a clock of its rules runs. So a rule may tell of a still consumer so much later, and no rule
acts later.
"""

from __future__ import annotations

from itertools import islice

from headway.core.consumer import Subscription
from headway.core.policy import Sample
from headway.core.queue import queue_behind
from headway.core.routing import Registry

LOOKS_MAX = 256
PASSED_MAX = 1024
"""A sweep passes by so many consumers that rest."""
STILL_S = 1.5
REST_S = 0.5
"""Two rests are a second, in which the observer writes a row."""


class Watchlist:
    def __init__(self, registry: Registry) -> None:
        self._watched = registry.watched
        self.late_s = 0.0
        """The sum of seconds by which sweeps came too late. The broker caused them, so they are taken off the clocks of
        rules (``PolicyState.keep_up``)."""

    def add(self, subscription: Subscription) -> None:
        if subscription not in self._watched:
            self._watched[subscription] = None
            subscription.case.state.late_s = self.late_s

    def remove(self, subscription: Subscription) -> None:
        """Takes a consumer off the list. One of a queue gets onto it again when records wait that nobody can take."""
        self._watched.pop(subscription, None)
        if (queue := queue_behind(subscription)) is not None:
            queue.members.not_watched(subscription)

    def first(self, now: float) -> list[Subscription]:
        """Returns the consumers whose last look was longest ago, ``LOOKS_MAX`` at most, without those that rest."""
        some = islice(self._watched, LOOKS_MAX + PASSED_MAX)
        return list(islice((one for one in some if not _rests(one, now)), LOOKS_MAX))

    def move_to_end(self, subscription: Subscription) -> None:
        self._watched[subscription] = self._watched.pop(subscription)


def let_rest(subscription: Subscription, sample: Sample, now: float) -> None:
    """Lets a consumer rest after a look that has found its peer to stand still."""
    case = subscription.case
    if sample.blocked_time < STILL_S or not case.policy.only_tells or case.policy.plugged or case.trials:
        return
    if not case.state.steady:
        return
    case.rests_until_s = REST_S + (case.rests_until_s if now - case.rests_until_s < REST_S else now)
    case.rests_at_bytes = subscription.session.outlet.taken_bytes


def _rests(subscription: Subscription, now: float) -> bool:
    case = subscription.case
    return now < case.rests_until_s and subscription.session.outlet.taken_bytes == case.rests_at_bytes
