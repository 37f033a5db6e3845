"""Attempts to log in, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

Wanted = Callable[[], bool]
"""Says whether a login is still to be checked."""


class Attempt(NamedTuple):
    """A login that is tried."""

    name: str
    password: bytes
    address: str
    """Without a port."""
    client: str = ""
    """The client id; empty where the protocol has none."""
    listener: str = ""
    """Empty at the admin API."""


class Refusal(NamedTuple):
    """A login that failed, and why, in the words that the client is told."""

    text: str
    away: bool = False
    """Whether nobody was there to check it, so that it is no wrong guess."""
    checked: bool = True
    """Whether it came to a check at all."""
