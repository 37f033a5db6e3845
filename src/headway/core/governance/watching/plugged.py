"""Plugged-in meters and actions, as the governor calls them: meters before a look, actions when their rules fire.
A plugged-in condition is a meter here, too.

A plug-in gets plain values and returns plain values, so it cannot reach into the broker. An exception that it raises
does no harm: a meter that fails has no value, and an action that fails does nothing. Failures are counted. The first
failure of each plug-in is logged (``PluginFailed``).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from traceback import format_exception_only

import msgspec

from headway.core.consumer import PluginFailed, Subscription
from headway.core.policy import ACTIONS, METERS, Action, ActionKind, Decision, Look, Move, Sample
from headway.core.routing import Registry

MOVES_MAX = 16
TEXT_CHARS_MAX = 300


class Plugged:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.failures: Counter[str] = Counter()
        """Exceptions raised, by the plug-in's name."""

    def measure(self, subscription: Subscription, sample: Sample, names: Sequence[str], now: float, wall_s: float
                ) -> Sample:
        """Returns the sample with the values of these meters. A meter without a value is left out."""
        look = _look(subscription, sample, wall_s)
        values = {}
        for name in names:
            plugged = METERS[name].plugged
            assert plugged is not None
            try:
                value = plugged.measure(look, now)
                if value is not None:
                    values[name] = _number(value)
            except Exception as error:  # noqa: BLE001 - a plug-in may raise anything
                self._failed(METERS[name].condition or name, error)
        return msgspec.structs.replace(sample, plugged=values)

    def ask(self, subscription: Subscription, decision: Decision, sample: Sample, now: float, wall_s: float
            ) -> Decision:
        """Returns the decision with the moves that the plugged-in action of its rule answers."""
        action = decision.action
        plugged = ACTIONS[action.name].plugged
        assert plugged is not None
        try:
            shown = msgspec.structs.replace(sample, plugged=dict(sample.plugged or ()))
            answer = plugged.act(_look(subscription, shown, wall_s), dict(action.options), now)
            moves = _moves(answer, action)
        except Exception as error:  # noqa: BLE001 - likewise
            self._failed(action.name, error)
            return msgspec.structs.replace(decision, failed=_one_line(error))
        return msgspec.structs.replace(decision, moves=tuple(move for move in moves if _applies(move, subscription)))

    def _failed(self, name: str, error: Exception) -> None:
        self.failures[name] += 1
        if self.failures[name] == 1:
            self._registry.effects.append(PluginFailed(name, error))


def _look(subscription: Subscription, sample: Sample, wall_s: float) -> Look:
    session = subscription.session
    return Look(
        sample=sample, client=session.client, filter=subscription.filter, listener=session.listener,
        protocol=session.protocol, user=session.username or "", durable=subscription.durable,
        connected=session.connected, policy=subscription.case.policy.name, wall_s=wall_s,
    )  # fmt: skip


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TypeError(f"measure() returned {value!r}, which is neither a finite number nor None")
    return value


def _moves(answer: object, action: Action) -> Sequence[Move]:
    if not isinstance(answer, list | tuple) or not all(isinstance(move, Move) for move in answer):
        raise TypeError(f"act() returned {answer!r}, which is not a list of moves")
    if len(answer) > MOVES_MAX:
        raise ValueError(f"act() returned {len(answer)} moves; {MOVES_MAX} at most")
    for move in answer:
        if move.action is None:
            msgspec.json.encode(move.details)  # fails now rather than when it is sent
        elif move.action.needs_state and not action.conflates:
            raise ValueError(f"{action.name} conflates, and does not say conflates = True")
    return answer


def _applies(move: Move, subscription: Subscription) -> bool:
    """Tells whether a move applies. As with built-in actions, a consumer that is away cannot be cut, and a durable
    subscription is deleted only where the move says so."""
    if move.action is None:
        return True
    if move.action.kind is ActionKind.DELETE_SUBSCRIPTION:
        return move.action.durable or not subscription.durable
    return subscription.session.connected or not move.action.kind.needs_connection


def _one_line(error: Exception) -> str:
    """Returns the error as one line of text."""
    text = " ".join("".join(format_exception_only(error)).split())
    return text if len(text) <= TEXT_CHARS_MAX else f"{text[:TEXT_CHARS_MAX]}…"
