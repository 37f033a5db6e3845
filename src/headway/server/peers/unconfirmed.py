"""Numbers of channels, sessions or links that the broker has ended, and whose client has not confirmed that yet."""

from __future__ import annotations


class Unconfirmed:
    """A set of small numbers. Each is one bit, for nothing else limits how many a client leaves unconfirmed."""

    __slots__ = ("_bits",)

    def __init__(self) -> None:
        self._bits = 0

    def __contains__(self, number: int) -> bool:
        return bool(self._bits >> number & 1)

    def add(self, number: int) -> None:
        self._bits |= 1 << number

    def remove(self, number: int) -> None:
        """Takes a number out that is in."""
        self._bits ^= 1 << number
