"""Decisions: what a policy decides about one consumer, and the readings behind it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from headway.core.policy.rules import Action, Move, Reading


class DecisionKind(StrEnum):
    FIRE = "fire"
    CLEAR = "clear"


class Decision(msgspec.Struct, frozen=True):
    """One decision: a rule fires, or it clears."""

    rule: int
    """Index of the rule in its policy, from 0. People see numbers from 1."""
    kind: DecisionKind
    action: Action
    enforced: bool
    """The action is carried out: the rule is no dry run, and the consumer is not spared."""
    readings: tuple[Reading, ...]
    """All comparisons of the condition, including those in an ``any`` that did not hold."""
    window_s: float
    """The rule's ``for``, in seconds."""
    held_s: float
    """For a fire, how long the condition has held; for a clear, how long the rule was active."""
    tests: int = 0
    """The rule's ``retries``: how many tests found the condition true."""
    times: int = 1
    """The rule's ``times``: how many separate times the condition held."""
    rule_name: str = ""
    relapses: int = 0
    """How often the condition has held anew since the rule began to waver (rule_state.py)."""
    moves: tuple[Move, ...] | None = None
    """The answer of a plugged-in action. None: it was not called, or it failed."""
    undone: tuple[Action, ...] = ()
    """For a clear, what the rule did while it was active."""
    spared: bool = False
    """The action is not for durable consumers, and this is one."""
    failed: str = ""
    """How the plugged-in action failed; empty: it did not."""

    @property
    def leading(self) -> Reading | None:
        """Returns the most telling reading: the first that exceeds its threshold, the consumer's own before those about
        others."""
        return leading(self.readings)


def leading(readings: Sequence[Reading]) -> Reading | None:
    """Returns the most telling reading; None if there are none."""
    held = [reading for reading in readings if reading.held]
    ranked = [reading for reading in held if reading.exceeds] or held or readings
    return min(ranked, key=lambda reading: reading.meter in ("slow_fraction", "slow_count"), default=None)
