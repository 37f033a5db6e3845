"""The end of patience: a job that its client held for longer than it asked for goes back to its queue.

While the patience lasts, the meters leave it out (``core/policy/meters/meter.py``, rule 8). When it is over, the
records that were sent so long ago are returned, as the action ``return`` does it, whatever the policy says: others get
them, and the consumer gets no more before it has settled them.
"""

from __future__ import annotations

import msgspec

from headway.core.base import Reason, format_duration
from headway.core.consumer import Subscription, is_patient, patience_for
from headway.core.governance.watching.verdict_log import VerdictLog
from headway.core.policy import ActionKind, Reading, Sample, judge_pressure
from headway.core.queue import queue_behind
from headway.core.routing import Advisories, Registry


class PatienceEnd:
    """Returns what consumers have held beyond their patience."""

    def __init__(self, registry: Registry, verdicts: VerdictLog, advisories: Advisories) -> None:
        self._registry = registry
        self._verdicts = verdicts
        self._advisories = advisories

    def look(self, subscription: Subscription, sample: Sample, now: float) -> None:
        """Returns the records that the consumer has held for longer than the patience for them. Called at each look.
        """
        queue = queue_behind(subscription)
        if not is_patient(subscription) or sample.ack_age <= 0 or queue is None:
            return
        late = queue.unsettled.requeue_late(subscription, now)
        if not late:
            return
        returned, patience_s = len(late), patience_for(subscription, late[0])
        asked = "it asked for" if patience_s == subscription.patience_s else "its message asked for"
        held_s = patience_s + sample.ack_age
        verdict = judge_pressure(
            Reason.ACK_AGE, ActionKind.RETURN,
            f"{returned} of its records held beyond the {format_duration(patience_s)} of patience {asked}",
            msgspec.structs.replace(sample, ack_age=held_s),
            number=self._verdicts.book.next_number(), now=now, wall_s=now + self._registry.wall_offset_s,
            client=subscription.session.client, filter=subscription.filter, listener=subscription.session.listener,
            readings=(Reading("ack_age", held_s, ">", patience_s),),
        )  # fmt: skip
        self._verdicts.record(subscription, verdict, now)
        self._advisories.tell("returned", subscription.session.client, now, filter=subscription.filter,
                              records=returned)  # fmt: skip
