"""Made-up topics: how many read each of them, and what is published on it.

What is true of them:
- A few topics have many readers and many have few (Zipf), and a few carry most of the bytes (Pareto). The two have
  nothing to do with each other.
- Over time the rate trembles, swells over the day, and now and then bursts to several times the usual.
- The records of one topic are all of one size, so records and bytes tell the same story.

A topic's traffic is a function of the seed and its number, whoever asks and wherever it runs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headway.core.base import ConfigError

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

READERS_MAX = 200
"""Consumers of one topic: they are made together, by one task, and this bounds its memory."""
READERS_USUAL = 20
_ZIPF = 0.8
_RATE_MIN, _RATE_MAX, _PARETO = 2_000.0, 500_000.0, 1.2
"""Bytes per second of a topic, and the exponent of the distribution's tail."""
_RECORD_MIN_BYTES, _RECORD_SPREAD = 100, 20.0
_DAY_S, _BURST_EVERY_S, _BURST_S = 86_400.0, 600.0, 15.0


class SyntheticLane(NamedTuple):
    """One topic and its consumers, who are numbered from ``first`` on."""

    number: int
    first: int
    consumers: int


class Traffic(NamedTuple):
    """Records published on one topic. ``ends[t]``: records so far, ``t`` seconds after the start; ``ends[0]`` is 0."""

    filter: str
    record_bytes: int
    ends: Ints


def chance(seed: int, what: str, number: int = 0) -> np.random.Generator:
    """Makes dice of its own for each thing there is, the same wherever it is made."""
    return np.random.default_rng([seed, *what.encode(), number])


def deal(consumers: int, topics: int) -> list[SyntheticLane]:
    """Assigns readers to topics: every topic has a reader, none more than ``READERS_MAX``."""
    if not 1 <= topics <= consumers:
        raise ConfigError(f"topics: from 1 to the number of consumers ({consumers:,}), not {topics:,}")
    if consumers > topics * READERS_MAX:
        least = -(-consumers // READERS_MAX)
        raise ConfigError(f"topics: at most {READERS_MAX} consumers read one, so at least {least:,}, not {topics:,}")
    weights = np.arange(1, topics + 1) ** -_ZIPF
    readers = np.ones(topics, dtype=np.int64)
    while left := consumers - int(readers.sum()):
        open_weights = np.where(readers < READERS_MAX, weights, 0.0)
        more = np.floor(left * open_weights / open_weights.sum()).astype(np.int64)
        if not more.any():
            more[np.flatnonzero(readers < READERS_MAX)[:left]] = 1
        readers += np.minimum(more, READERS_MAX - readers)
    firsts = np.cumsum(readers) - readers
    return [
        SyntheticLane(number, int(first), int(count))
        for number, (first, count) in enumerate(zip(firsts, readers, strict=True))
    ]


def publish(seed: int, number: int, steps: int) -> Traffic:
    """The traffic of topic ``number`` over so many seconds."""
    dice = chance(seed, "topic", number)
    rate = min(_RATE_MAX, _RATE_MIN * dice.random() ** (-1 / _PARETO))
    record_bytes = int(_RECORD_MIN_BYTES * _RECORD_SPREAD ** dice.random())
    seconds = np.arange(steps)
    swell = 1 + 0.3 * np.sin(2 * np.pi * (seconds / _DAY_S + dice.random()))
    ripple = 1 + 0.2 * np.sin(2 * np.pi * (seconds / (600 + 1200 * dice.random()) + dice.random()))
    tremble = 0.5 - 0.5 * np.log1p(-dice.random(steps))
    bursts = np.ones(steps)
    at = 0.0
    while (at := at - _BURST_EVERY_S * np.log1p(-dice.random())) < steps:
        length = 3 - _BURST_S * np.log1p(-dice.random())
        bursts[int(at) : int(at + length) + 1] = min(10.0, 2 * (1 - dice.random()) ** -0.7)
    records = rate / record_bytes * swell * ripple * tremble * bursts
    ends = np.concatenate([[0], np.floor(np.cumsum(records))]).astype(np.int64)
    return Traffic(f"synthetic/{number:05d}", record_bytes, ends)
