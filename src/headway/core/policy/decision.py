"""Decisions: what a policy says is to be done about one consumer, and what that rests on."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from headway.core.policy.action import Action, Move
from headway.core.policy.condition import Reading


class DecisionKind(StrEnum):
    FIRE = "fire"
    CLEAR = "clear"


class Decision(msgspec.Struct, frozen=True):
    """What is to be done about the consumer, and what it rests on."""

    rule: int
    """Index of the rule in its policy, from 0; people are shown one more."""
    kind: DecisionKind
    action: Action
    enforced: bool
    readings: tuple[Reading, ...]
    """Every comparison of the condition, also those that did not hold (in an ``any``)."""
    window_s: float
    """The rule's ``for``."""
    held_s: float
    """Fire: for how long it held. Clear: for how long the rule was active."""
    tests: int = 0
    """The rule's ``retries``: so many tests found it so."""
    times: int = 1
    """The rule's ``times``: so many separate times."""
    rule_name: str = ""
    moves: tuple[Move, ...] | None = None
    """What a plugged-in action answered (of a clear: when its rule fired); None: it was not asked, or failed."""
    failed: str = ""
    """How it failed."""

    @property
    def leading(self) -> Reading | None:
        """The reading that speaks for the rest: the first that exceeds, the company's after the consumer's own."""
        return leading(self.readings)


def leading(readings: Sequence[Reading]) -> Reading | None:
    """The one that speaks for the rest; None where there are none."""
    held = [reading for reading in readings if reading.held]
    ranked = [reading for reading in held if reading.exceeds] or held or readings
    return min(ranked, key=lambda reading: reading.meter in ("slow_fraction", "slow_count"), default=None)
