"""The user of a link, as the link knows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from headway.core.message import Run

Pairs = Sequence[tuple[str, str]]
"""User properties."""


class Receiver(Protocol):
    def room(self) -> int:
        """Returns how many records may come now; 0: nothing more is to be read."""

    def received(self, runs: Sequence[Run]) -> None:
        """Takes records, in order. Each run has the properties that its records share."""

    def granted(self, number: int, refusal: str, user: Pairs) -> None:
        """SUBACK came; ``refusal`` is empty if the subscription was granted."""

    def ended(self, number: int) -> None:
        """UNSUBACK came."""

    def lost(self, why: str) -> None:
        """The connection is over, and not because of ``Link.close``."""
