"""Dialects' common part: a dialect (core/message/record.py) derives from it, and says where it differs."""

from __future__ import annotations

import msgspec


class PlainDialect(msgspec.Struct, frozen=True):
    """Frames that are written anew from each run, whole, and the same for every consumer."""

    @property
    def form(self) -> object:
        """No run has come in these bytes."""
        return None

    @property
    def id_bytes(self) -> int:
        """There is no delivery id in a frame."""
        return 0

    @property
    def bare(self) -> bool:
        return False

    @property
    def reads_own(self) -> bool:
        """No run is written with properties that differ between its records."""
        return False
