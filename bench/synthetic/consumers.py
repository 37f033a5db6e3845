"""Made-up consumers: what each kind of them can take at each second, and what therefore waits for it.

The model of a consumer whose socket is the limit: its application takes ``takes[t]`` records in second t, and the
kernels between it and the broker hold ``buffer`` records. What is published and not taken by the application fills the
kernels first; what they cannot hold waits in the lane and is the lag. So for some time after a consumer got stuck the
broker sees nothing of it, and a stuck one that goes on drains the lane at once.

One whose window is the limit is sent records until ``window`` of them are unacknowledged, and then none until it
acknowledges, which it does at ``acks[t]``.

Of a hundred consumers in a row each kind has exactly its share (``SHARES``), in an order of chance. All of a consumer
is a function of the seed and its number (and of what its topic carries), whoever asks and wherever it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bench.synthetic.lanes import Floats, Ints, Traffic, chance
from headway.core.base import Reason

Flags = npt.NDArray[np.bool_]

SHARES = {
    "healthy": 70, "sluggish": 5, "stalling": 7, "stuck": 3, "flapping": 4, "bursty": 4, "late-acks": 3, "passing": 2,
    "away": 2,
}  # fmt: skip
"""The number of consumers of each kind in a hundred; the kind is the first part of the client's name."""
_KINDS = [kind for kind, share in SHARES.items() for _ in range(share)]
_UNLIMITED = 10**9
"""Records a second, more than any consumer is ever offered."""
_BUFFER_MIN_BYTES, _BUFFER_MAX_BYTES = 64_000, 256_000
LIVES_MAX = 2


class WindowState(NamedTuple):
    """A window as the broker sees it, at each second of a life."""

    in_flight: Ints
    exhausted_s: Floats
    """The time for which the window has been full while records wait."""
    age_s: Floats
    """The time since the oldest record in flight was sent."""


class Life(NamedTuple):
    """One subscription from its first second to its last, both included. Arrays begin at ``start``."""

    client: str
    subscription: int
    start: int
    stop: int
    ended: str
    """The reason of its end; empty if it goes on after the recording."""
    lag: Ints
    """Records that wait for it."""
    away: Flags | None = None
    """The time in which its client is not connected; None: it always is."""
    acks: WindowState | None = None
    window: int = 0
    network: bool = False
    """Whether it is the network that lets nothing through when its socket takes nothing."""

    @property
    def durable(self) -> bool:
        return self.away is not None


class _Habit(NamedTuple):
    """The traits of a consumer; arrays cover the whole recording."""

    takes: Ints
    lives: tuple[tuple[int, int, str], ...]
    acks: Flags | None = None
    window: int = 0
    away: Flags | None = None
    network: bool = False


def live(seed: int, number: int, traffic: Traffic) -> list[Life]:
    """All subscriptions of one consumer, the first first."""
    kind = _KINDS[chance(seed, "kinds", number // len(_KINDS)).permutation(len(_KINDS))[number % len(_KINDS)]]
    dice = chance(seed, "consumer", number)
    buffer = dice.uniform(_BUFFER_MIN_BYTES, _BUFFER_MAX_BYTES)
    steps = len(traffic.ends) - 1
    habit = _HABITS[kind](dice, float(traffic.ends[-1]) / steps, steps)
    lives = []
    for index, (start, stop, ended) in enumerate(habit.lives):
        offered = traffic.ends[start : stop + 1] - traffic.ends[start]
        acks = None
        if habit.acks is not None:
            lag, acks = _through_window(offered, habit.acks[start:stop], habit.window)
        else:
            held = 0 if habit.away is not None else int(buffer) // traffic.record_bytes
            lag = np.maximum(0, _queue(offered, habit.takes[start:stop]) - held)
        away = habit.away[start : stop + 1] if habit.away is not None else None
        lives.append(Life(
            f"{kind}-{number:06d}", number * LIVES_MAX + index + 1, start, stop, ended, lag, away, acks, habit.window,
            habit.network,
        ))  # fmt: skip
    return lives


def _queue(offered: Ints, takes: Ints) -> Ints:
    """The length of a queue at each second: 0 at first, then arrivals less departures."""
    surplus: Ints = np.concatenate([[0], np.cumsum(np.diff(offered) - takes)])
    return surplus - np.minimum.accumulate(np.minimum(surplus, 0))


def _through_window(offered: Ints, acks: Flags, window: int) -> tuple[Ints, WindowState]:
    """Returns the records that wait for one with a window, and the window itself."""
    sent = settled = sent_at = full_at = 0
    was_full = False
    rows = [(0, 0, 0, 0)]
    for second, (end, acknowledges) in enumerate(zip(offered[1:].tolist(), acks.tolist(), strict=True), 1):
        if acknowledges:
            settled, was_full = sent, False
        take = min(window - (sent - settled), end - sent)
        if take and sent == settled:
            sent_at = second
        sent += take
        full = sent - settled >= window
        if full and not was_full:
            full_at = second
        was_full = full
        flying = sent - settled
        rows.append((end - sent, flying, second - full_at if full else 0, second - sent_at if flying else 0))
    lag, in_flight, exhausted, age = np.array(rows, dtype=np.int64).T
    return lag, WindowState(in_flight, np.where(lag > 0, exhausted, 0).astype(float), age.astype(float))


def _between(dice: np.random.Generator, low: float, high: float) -> float:
    """A number from a wide range, small ones as likely as large ones."""
    return float(low * (high / low) ** dice.random())


def _all_along(steps: int) -> tuple[tuple[int, int, str], ...]:
    return ((0, steps, ""),)


def _pace(rate: float, factor: float, steps: int) -> Ints:
    """Returns whole records at each second, at so many times the rate of the topic."""
    records: Ints = np.floor(np.arange(steps + 1) * rate * factor).astype(np.int64)
    return np.diff(records)


def _healthy(dice: np.random.Generator, rate: float, steps: int) -> _Habit:
    """Takes everything; once in a while it pauses for a few seconds."""
    takes = np.full(steps, _UNLIMITED)
    for at in dice.random(int(3 * dice.random())):
        takes[int(at * steps) : int(at * steps + _between(dice, 1, 6))] = 0
    return _Habit(takes, _all_along(steps))


def _sluggish(dice: np.random.Generator, rate: float, steps: int) -> _Habit:
    """A bit too slow, all the time."""
    return _Habit(_pace(rate, dice.uniform(0.6, 0.97), steps), _all_along(steps))


def _stalling(dice: np.random.Generator, rate: float, steps: int) -> _Habit:
    """Takes nothing for a while, recovers, and may do it again."""
    takes = _pace(rate, _between(dice, 3, 20), steps)
    for at in dice.random(1 + int(3 * dice.random())):
        takes[int(at * steps) : int(at * steps + _between(dice, 10, 400))] = 0
    return _Habit(takes, _all_along(steps), network=dice.random() < 0.3)


def _stuck(dice: np.random.Generator, rate: float, steps: int) -> _Habit:
    """Stops reading and never goes on."""
    takes = np.full(steps, _UNLIMITED)
    takes[int(steps * dice.uniform(0.05, 0.7)) :] = 0
    return _Habit(takes, _all_along(steps), network=dice.random() < 0.3)


def _flapping(dice: np.random.Generator, rate: float, steps: int) -> _Habit:
    """Reads for a while, does not read for a while, and so on."""
    takes = _pace(rate, _between(dice, 2, 8), steps)
    on, off, at = _between(dice, 15, 120), _between(dice, 15, 120), dice.random() * 60
    while at < steps:
        takes[int(at) : int(at + off * dice.uniform(0.5, 1.5))] = 0
        at += (on + off) * dice.uniform(0.7, 1.3)
    return _Habit(takes, _all_along(steps))


def _bursty(dice: np.random.Generator, rate: float, steps: int) -> _Habit:
    """Keeps up with the usual, and not with the bursts."""
    return _Habit(_pace(rate, dice.uniform(1.05, 1.6), steps), _all_along(steps))


def _late_acks(dice: np.random.Generator, rate: float, steps: int) -> _Habit:
    """Acknowledges all it has every so often, and once in a while not for long."""
    every = int(_between(dice, 1, 20))
    acks = (np.arange(steps) + int(every * dice.random())) % every == 0
    for at in dice.random(int(3 * dice.random())):
        acks[int(at * steps) : int(at * steps + _between(dice, 20, 200))] = False
    window = int(np.clip(rate * every * _between(dice, 0.9, 4), 10, 1024))
    return _Habit(np.full(steps, _UNLIMITED), _all_along(steps), acks, window)


def _passing(dice: np.random.Generator, rate: float, steps: int) -> _Habit:
    """A consumer that comes later and leaves, in the ordinary way or because it hangs; it may come back."""
    takes = np.full(steps, _UNLIMITED)
    at = sorted(int(share * steps) for share in dice.random(3))
    hangs = dice.random() < 0.5
    if hangs:
        takes[max(at[0], at[1] - int(_between(dice, 30, 90))) : at[1]] = 0
    lives = [(at[0], at[1], str(Reason.KEEP_ALIVE if hangs else Reason.NORMAL))]
    if dice.random() < 0.5:
        lives.append((at[2], steps, ""))
    return _Habit(takes, tuple(life for life in lives if life[1] > life[0]))


def _away(dice: np.random.Generator, rate: float, steps: int) -> _Habit:
    """A durable one that is not there from time to time; what came meanwhile waits for it."""
    away = np.zeros(steps + 1, dtype=bool)
    for at in dice.random(1 + int(3 * dice.random())):
        away[1 + int(at * steps) : 1 + int(at * steps + _between(dice, 30, 600))] = True
    takes = np.where(away[1:], 0, _pace(rate, _between(dice, 4, 20), steps))
    return _Habit(takes, _all_along(steps), away=away)


_HABITS: dict[str, Callable[[np.random.Generator, float, int], _Habit]] = {
    "healthy": _healthy, "sluggish": _sluggish, "stalling": _stalling, "stuck": _stuck, "flapping": _flapping,
    "bursty": _bursty, "late-acks": _late_acks, "passing": _passing, "away": _away,
}  # fmt: skip
