"""The judge's arithmetic: labels and verdicts in, counts out.

Rules:
1. A verdict belongs to a consumer by its client and, where a client has several, by its filter.
2. A verdict is *true* if the consumer was in a spell of trouble then, and *false* if not. ``TAIL_S`` after a spell it
   still counts as true, for the broker looks five times a second and the consumer has to catch up first.
3. A spell is *found* by the first true verdict, at the time since its onset. A rule that fired before the onset and has
   not stepped back has found the spell at its onset (and was false before).
4. A consumer has a *false verdict* if there is one at least. It is counted among the consumers that were healthy all
   the time or some of it.
5. A spell that ends before ``SPELL_MIN_S`` is not asked for: nobody could say so early whether it is one.
6. The *cause* is right if the first true verdict names it, in the broker's word for it or in a finer one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from statistics import median

from bench.behaviours.consumers.labels import COARSE, Label, Spell
from bench.behaviours.judging.findings import Finding

TAIL_S = 5.0
SPELL_MIN_S = 15.0
LASTS = frozenset({"notify", "conflate", "discard", "offline", "block_publishers", "return"})
"""Actions that are in force until their rule steps back."""


@dataclass
class Outcome:
    """One policy's findings about one consumer."""

    label: Label
    false: list[Finding]
    found: list[tuple[Spell, Finding | None, float]]
    """Each spell, the verdict that found it (None: missed), and after how many seconds."""


@dataclass
class Score:
    """One policy's findings about the whole set, counted."""

    policy: str
    healthy: int = 0
    false: Counter[str] = field(default_factory=Counter)
    troubled: int = 0
    missed: Counter[str] = field(default_factory=Counter)
    times_s: list[float] = field(default_factory=list)
    """To find each spell of the stuck kinds that was found."""
    stuck: int = 0
    causes_right: int = 0
    causes_wrong: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """Kind, true cause, and the cause that was named."""

    @property
    def found(self) -> int:
        return self.troubled - self.missed.total()

    @property
    def median_s(self) -> float | None:
        return median(self.times_s) if self.times_s else None

    @property
    def worst_s(self) -> float | None:
        return max(self.times_s) if self.times_s else None


def of_label(label: Label, findings: Iterable[Finding]) -> list[Finding]:
    """Returns the findings about this consumer, the oldest first (rule 1)."""
    theirs = [
        one for one in findings if one.client == label.client and (not label.filter or label.filter in one.filter)
    ]
    return sorted(theirs, key=lambda one: one.time_s)


def judge(label: Label, findings: Sequence[Finding], ended_s: float) -> Outcome:
    """Returns what the verdicts of one policy on one consumer are worth. ``ended_s``: when the run ended."""
    fired = [one for one in findings if not one.clears]
    false = [one for one in fired if not any(_within(one.time_s, spell) for spell in label.spells)]
    found: list[tuple[Spell, Finding | None, float]] = []
    for spell in label.spells:
        if min(spell.end_s, ended_s) - spell.start_s < SPELL_MIN_S:
            continue
        standing = _standing(findings, spell.start_s)
        first = standing or next((one for one in fired if _within(one.time_s, spell)), None)
        found.append((spell, first, max(0.0, first.time_s - spell.start_s) if first is not None else inf))
    return Outcome(label, false, found)


def _within(time_s: float, spell: Spell) -> bool:
    return spell.start_s <= time_s <= spell.end_s + TAIL_S


def _standing(findings: Sequence[Finding], time_s: float) -> Finding | None:
    """Returns a verdict that stood at this time (rule 3)."""
    active: dict[int, Finding] = {}
    for one in findings:
        if one.time_s > time_s:
            break
        if one.clears:
            active.pop(one.rule, None)
        elif one.action in LASTS:
            active[one.rule] = one
    return next(iter(active.values()), None)


def right(named: str, true: str) -> bool:
    """Tells whether the named cause is the true one (rule 6)."""
    return named in (true, COARSE[true])


def total(policy: str, outcomes: Iterable[Outcome], ended_s: float) -> Score:
    """Returns the sum of one policy's outcomes."""
    score = Score(policy)
    for outcome in outcomes:
        label = outcome.label
        if _healthy_s(label, ended_s) > 0:
            score.healthy += 1
            score.false[label.kind] += bool(outcome.false)
        for spell, finding, after_s in outcome.found:
            score.troubled += 1
            score.stuck += label.stuck
            score.missed[label.kind] += finding is None
            if finding is None:
                continue
            if label.stuck:
                score.times_s.append(after_s)
            if right(finding.cause, spell.cause):
                score.causes_right += 1
            else:
                score.causes_wrong[label.kind, spell.cause, finding.cause] += 1
    score.false, score.missed = +score.false, +score.missed
    return score


def _healthy_s(label: Label, ended_s: float) -> float:
    """Returns for how long the consumer was healthy. A moment before an onset does not count."""
    troubled_s = sum(min(spell.end_s, ended_s) - spell.start_s for spell in label.spells)
    healthy_s = ended_s - label.began_s - troubled_s
    return healthy_s if healthy_s > TAIL_S or not label.spells else 0.0


def scores(labels: Sequence[Label], findings: Iterable[Finding], policies: Sequence[str], ended_s: float
           ) -> dict[str, Score]:
    """Returns the score of each policy."""
    by: dict[str, dict[str, list[Finding]]] = {policy: {} for policy in policies}
    for one in findings:
        by.setdefault(one.policy, {}).setdefault(one.client, []).append(one)
    return {
        policy: total(
            policy, (judge(label, of_label(label, theirs.get(label.client, ())), ended_s) for label in labels), ended_s
        )
        for policy, theirs in by.items()
    }


def added(one: Score, other: Score) -> Score:
    """Returns the sum of two runs' scores."""
    return Score(
        one.policy, one.healthy + other.healthy, one.false + other.false, one.troubled + other.troubled,
        one.missed + other.missed, one.times_s + other.times_s, one.stuck + other.stuck,
        one.causes_right + other.causes_right, one.causes_wrong + other.causes_wrong,
    )  # fmt: skip
