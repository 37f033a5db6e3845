"""Random input for the fuzzers, drawn from a seed that Hypothesis gives.

Hypothesis alone was rejected: its twenty choices for one example cost ten times as much as the decoder that is tested.
The price is that an input that fails is printed as it is, and not shrunk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from math import inf
from random import Random
from typing import Any, TypeVar

from hypothesis import strategies as st

T = TypeVar("T")


def seeded(draw: Callable[[Random], T]) -> st.SearchStrategy[T]:
    return st.integers(0, 2**64 - 1).map(lambda seed: draw(Random(seed)))


def cuts(rng: Random, count: int = 6, end: int = 400) -> list[int]:
    """Places at which bytes are cut into pieces."""
    return [rng.randrange(end) for _ in range(rng.randint(0, count))]


def mutated(rng: Random, data: bytes, fewest: int, special: Sequence[int]) -> bytearray:
    """Up to four times some bytes are changed, cut out, or put in; most often to these special ones."""
    out = bytearray(data)
    for _ in range(rng.randint(fewest, 4)):
        at, kind = rng.randint(0, len(out)), rng.randrange(3)
        if kind == 0:
            out[at:at] = rng.randbytes(rng.randint(1, 3))
        elif kind == 1:
            del out[at : at + rng.randint(1, 3)]
        elif at < len(out):
            out[at] = rng.choice((*special, rng.randrange(256), rng.randrange(256)))
    return out


def text(rng: Random, longest: int = 60) -> str:
    plane = rng.choice(((0, 128), (0, 128), (0, 0xD800), (0xE000, 0x110000)))
    return "".join(chr(rng.randrange(*plane)) for _ in range(rng.choice((0, 1, 3, rng.randint(0, longest)))))


def value(rng: Random, depth: int = 2) -> Any:
    """The value of a header of AMQP 0-9-1."""
    kind = rng.randrange(10 if depth else 8)
    if kind == 0:
        return rng.choice((None, True, False))
    if kind == 1:
        return rng.choice((-1, 1)) * rng.getrandbits(rng.randint(0, 63))
    if kind == 2:
        return -(2**63) if rng.random() < 0.1 else rng.choice((0, -(2**31), 2**31, 2**63 - 1))
    if kind == 3:
        return rng.choice((0.0, -0.0, inf, -inf, 5e-324, rng.uniform(-1e9, 1e9)))
    if kind == 4:
        return text(rng)
    if kind == 5:
        return bytearray(rng.randbytes(rng.randint(0, 8)))
    if kind == 6:
        return Decimal(rng.randint(-(2**31), 2**31 - 1)).scaleb(-rng.randint(0, 255))
    if kind == 7:
        return datetime.fromtimestamp(rng.randint(0, 4_000_000_000), UTC)
    return table(rng, depth - 1, 3) if kind == 8 else [value(rng, depth - 1) for _ in range(rng.randint(0, 3))]


def table(rng: Random, depth: int = 2, most: int = 4) -> dict[str, Any]:
    return {text(rng): value(rng, depth) for _ in range(rng.randint(0, most))}
