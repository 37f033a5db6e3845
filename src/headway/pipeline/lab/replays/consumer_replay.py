"""Replays one consumer along its recorded trace; the broker's own meter looks at it on its way.

A replay stands at a position on the curve of what was offered (curves.py). Each step takes it as far as the history
says it could take; what an action does to it (core/governance/moves.py) is done here to the position:

==================== ==============================================================================================
discard oldest       the position moves on until only so much waits; ``lowest_priority`` likewise: a sample does not
                     say which records those were, only how many went
discard newest       what comes from some position on is left out until further notice
conflate             while it can take anything it is brought to the end at each look, and what it could not take of
                     that is conflated; while it takes nothing it goes on waiting, but holds nothing of the lane
block_publishers     what is offered stands still, and comes all at once when the gate opens
disconnect (durable) it takes nothing until the recording says that its client came back
==================== ==============================================================================================
"""

from __future__ import annotations

import copy
from math import ceil, inf
from typing import Self

from headway.core.policy import UNSEEN_S, Action, Figures, Meter, Sample, Which
from headway.pipeline.lab.replays.trace import ConsumerTrace

STEP_S = UNSEEN_S
"""The longest step while something waits, or deliveries are in flight. A meter that was not asked for longer takes it
that nothing waited meanwhile."""
NOTHING = 0.5
"""Bytes that count as none: positions are interpolated."""


class ConsumerReplay:
    """One subscription under way. Positions in bytes offered since it began; times as in its history."""

    def __init__(self, trace: ConsumerTrace, begin: float, memory_limit: int, patience_s: float = 0.0) -> None:
        """``begin`` later than the trace's: the client came back only then. ``memory_limit``: of the recorded pool.
        ``patience_s``: what its policy grants of the patience that it asked for."""
        self.trace = trace
        self._patience_s = patience_s
        self.time = begin
        self._index = trace.sample_at(begin)
        self.taken = 0.0
        """Bytes it was given since ``begin``, and in a group the others, too."""
        self._others = 0.0
        """Bytes of them that went to other members of its group."""
        self.end, self.end_records, self._capacity = trace.at(begin)
        late = begin > trace.begin
        self.position = self.end if late else trace.start_bytes
        since = trace.times[0] if trace.waits_from is None else trace.waits_from
        self.meter = Meter(begin if late else since, int(self.position), trace.lateness)
        self._looked = late
        """Whether the governor has looked at it; it did when the first sample was taken."""
        self.conflating = False
        self.lost = 0.0
        """Records it was not given, by discards."""
        self.conflated = 0.0
        """Records left out because later ones of their key were given."""
        self.stalled_s = 0.0
        self._memory_limit = max(1, memory_limit)
        self._holes: list[tuple[float, float | None]] = []
        """(from, to) positions that are left out; None: until further notice."""
        self._gated: tuple[float, float, float] | None = None
        """(since, bytes, records): publishers wait, and so much had been offered."""
        self._released: list[tuple[float, float, float]] = []
        """(from, to, when): offered bytes that publishers sent only when the gate opened."""
        self._away_until: float | None = None

    def fork(self) -> Self:
        """A replay that goes its own way from here on."""
        other = copy.copy(self)
        other.meter = self.meter.fork()
        other._holes, other._released = list(self._holes), list(self._released)
        return other

    # -- going on ---------------------------------------------------------------------------------------------------

    def advance(self, time: float) -> None:
        """Goes on to that time. What a consumer could have taken while it was caught up is no credit for later."""
        if self.waiting_bytes < NOTHING:
            behind = self.trace.falls_behind(self.time)
            if behind is not None and self.time < behind < time:
                self._advance(behind)
        self._advance(time)

    def _advance(self, time: float) -> None:
        offered, records, capacity = self.trace.at(time)
        room = capacity - self._capacity
        self._capacity = capacity
        if self._away_until is not None:
            if time < self._away_until:
                room = 0.0
            else:
                self._away_until = None
        if self._gated is not None:
            self.stalled_s += time - self.time
            _, offered, records = self._gated
        self.time, self.end, self.end_records = time, offered, records
        self._index = self.trace.sample_at(time)
        self._take(room)

    def _take(self, room: float) -> None:
        while self._holes and self.position + room >= self._holes[0][0] - NOTHING:
            start, stop = self._holes[0]
            room -= self._move(start)
            if stop is None:
                return
            self._holes.pop(0)
            self.lost += self._skip_to(stop)
        self._move(min(self.end, self.position + room))
        if self.conflating and room >= 1 and self.end - self.position >= NOTHING:
            self.conflated += self._skip_to(self.end)

    def _move(self, position: float) -> float:
        """Moves to a position, all before it taken; returns how many bytes."""
        size = max(0.0, position - self.position)
        self.position += size
        self.taken += size
        self._others += size * (1.0 - self.trace.own_part(self.time))
        return size

    def _skip_to(self, position: float) -> float:
        """Leaves out all before a position; returns how many records."""
        if position <= self.position:
            return 0.0
        count = self.trace.standing(position)[0] - self.trace.standing(self.position)[0]
        self.meter.skipped(int(position) - int(self.position))
        self.position = position
        return count

    def next_look(self, sweep_s: float) -> float | None:
        """Returns when the governor looks at it next; None: never again. It looked whenever it recorded a sample."""
        trace, since = self.trace, self.time
        if self.waiting_bytes >= NOTHING and not self._looked:
            return since
        if self.waiting_bytes >= NOTHING:
            due = since + sweep_s
        elif trace.in_flight[self._index] or self.away:
            due = since + max(sweep_s, STEP_S)
        else:
            behind, holds = trace.falls_behind(since), trace.holds_from(since)
            if behind is None and holds is None:
                return None
            since = min(time for time in (behind, holds) if time is not None)
            due = since + (sweep_s if since == behind else max(sweep_s, STEP_S))
        due = trace.lateness.next_sweep(due, sweep_s)
        looked = trace.looked_after(since)
        in_time = looked is not None and trace.lateness.next_sweep(looked, 0.0) == looked < due + sweep_s / 2
        return looked if in_time else due

    def next_corner(self) -> float:
        """Returns how far ahead everything goes on evenly, in steps of ``STEP_S`` at most."""
        if not self._looked:
            return self.time
        ahead = self.trace.corner_after(self.time) - self.time
        return self.time + ahead / ceil(ahead / STEP_S - 1e-6)

    # -- looking ----------------------------------------------------------------------------------------------------

    @property
    def away(self) -> bool:
        return self._away_until is not None

    @property
    def connected(self) -> bool:
        return not self.away and self.trace.connected[self._index]

    @property
    def waiting_bytes(self) -> float:
        """Bytes that it has not been given yet and will be."""
        if self._holes and self._holes[-1][1] is None:
            return max(0.0, self._holes[-1][0] - self.position)
        return self.end - self.position

    @property
    def waiting_records(self) -> float:
        standing = self.trace.standing
        return max(0.0, standing(self.position + self.waiting_bytes)[0] - standing(self.position)[0])

    @property
    def gating_bytes(self) -> float:
        """Bytes of the lane that must be kept for it; a conflating consumer reads state."""
        return 0.0 if self.conflating else self.end - self.position

    @property
    def reached(self) -> float:
        """Bytes of those it was given that its host has acknowledged."""
        return self.taken - self.trace.reach.unacknowledged(self.time)

    def sample(self) -> Sample:
        """One look by the broker's meter."""
        self._looked = True
        trace, time, index = self.trace, self.time, self._index
        waiting = self.waiting_bytes
        lag_records, oldest = 0, inf
        if waiting >= NOTHING:
            passed, oldest = self._standing()
            upto = trace.standing(self.position + waiting)[0] if self._holes else self.end_records
            lag_records = max(1, ceil(upto - passed - 1e-6))
        position, end = int(self.position - self._others), int(self.position + waiting - self._others)
        there = self.connected
        unacked_since, full_since = trace.unacked_since(time), trace.credit.since(time) if there else inf
        patient_until, excused = self._excuse(time, unacked_since, full_since) if there else (-inf, False)
        others_bytes = max(0.0, trace.pool_share[index] * self._memory_limit - trace.lag_bytes[index])
        figures = Figures(
            position_bytes=position,
            end_bytes=max(position + 1, end) if lag_records else position,
            lag_records=lag_records,
            oldest_time_s=oldest,
            blocked_since=trace.blocked.since(time) if there else inf,
            usual_pause=trace.blocked.pause(time) if there else 0.0,
            unread_since=trace.unread.since(time) if there else inf,
            unread_pause=trace.unread.pause(time) if there else 0.0,
            unacknowledged_bytes=trace.reach.unacknowledged(time) if there else 0,
            lump_bytes=trace.reach.lump(time) if there else 0.0,
            connected=there,
            credit_exhausted_since=full_since,
            oldest_unacked_s=unacked_since,
            patient_until=patient_until,
            excused=excused,
            acknowledged=trace.acknowledged[index],
            unacknowledged_since=trace.silence.since(time) if there else inf,
            ack_pause=trace.silence.pause(time) if there else 0.0,
            in_flight=trace.in_flight[index],
            prefetch=trace.prefetch[index],
            pool_share=(others_bytes + self.gating_bytes) / self._memory_limit,
            slow_fraction=trace.slow_fraction[index],
        )
        return self.meter.observe(time, figures)

    def _excuse(self, time: float, unacked_since: float, full_since: float) -> tuple[float, bool]:
        """Returns until when the client has patience, and whether that is why it takes nothing."""
        if not self.trace.patience_asked_s:  # an older broker recorded only what came of it
            until = self.trace.excused_until(time)
            return (-inf, False) if until is None else (until, True)
        until = unacked_since + self._patience_s if unacked_since < inf else -inf
        return until, self._patience_s > 0 and full_since < inf

    @property
    def oldest(self) -> float:
        """The time since when the oldest record that it holds has waited."""
        return self._standing()[1]

    def _standing(self) -> tuple[float, float]:
        records, oldest = self.trace.standing(self.position)
        for start, stop, when in self._released:
            if start - NOTHING <= self.position < stop - NOTHING:
                oldest = when
        return records, min(oldest, self.time)

    # -- what is done to it -----------------------------------------------------------------------------------------

    def discard(self, action: Action) -> None:
        """Applies a discard; called at each look while its rule is active."""
        if action.which is not Which.NEWEST:
            self.lost += self._skip_to(self._kept(action, from_end=True))
        elif not self._holes or self._holes[-1][1] is not None:
            start = min(self.end, self._kept(action, from_end=False))
            while self._holes and self._holes[-1][1] is not None and self._holes[-1][1] >= start:
                start = min(start, self._holes.pop()[0])  # one that it has not come to yet goes on
            self._holes.append((start, None))

    def stop_discarding(self) -> None:
        """Ends the discard: later records are given again."""
        if self._holes and self._holes[-1][1] is None:
            self._holes[-1] = (self._holes[-1][0], self.end)

    def _kept(self, action: Action, *, from_end: bool) -> float:
        """Returns the position from which on (or, counted from where it stands, up to which) records are kept."""
        kept, trace = action.records_kept(self.trace.prefetch[self._index]), self.trace
        if from_end:
            by_count = trace.position_of(self.end_records - kept) if kept < inf else self.position
            return min(self.end, max(self.position, by_count, self.end - action.bytes_kept))
        by_count = trace.position_of(trace.standing(self.position)[0] + kept) if kept < inf else inf
        start = min(by_count, self.position + action.bytes_kept)
        return start if start < inf else self.end

    def stop_conflating(self) -> None:
        """Ends the conflation: gives every record again, from the end of the conflated ones."""
        if self.conflating:
            self.conflating = False
            self.conflated += self._skip_to(self.end)

    def gate(self) -> None:
        """Has publishers wait for it from now on."""
        if self._gated is None:
            self._gated = (self.time, self.end, self.end_records)

    def open_gate(self) -> None:
        """Lets publishers go on: what they held back comes at once."""
        if self._gated is None:
            return
        _, held_from, _ = self._gated
        self._gated = None
        self.end, self.end_records, _ = self.trace.at(self.time)
        if self.end > held_from:
            self._released.append((held_from, self.end, self.time))

    @property
    def gated(self) -> bool:
        return self._gated is not None

    def go_away(self) -> None:
        """Ends its connection; the session and its backlog stay."""
        self._away_until = self.trace.comes_back(self.time)
        if self._away_until is None:
            self._away_until = float("inf")

    def left_out_ahead(self) -> float:
        """Counts the records that are left out and that it has not come to yet."""
        standing = self.trace.standing
        return sum(
            (self.end_records if stop is None else standing(stop)[0]) - standing(max(start, self.position))[0]
            for start, stop in self._holes
        )
