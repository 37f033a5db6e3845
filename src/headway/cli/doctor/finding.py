"""A finding of `headway doctor`: what was looked at, how it is, and the command that mends it."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class State(StrEnum):
    GOOD = "good"
    DOUBTFUL = "doubtful"
    """The broker runs, and less well than it could."""
    BAD = "bad"
    """The broker does not start, or loses what it should keep."""


class Finding(NamedTuple):
    subject: str
    """A short name, such as ``descriptors``."""
    state: State
    text: str
    mend: str = ""
    """A command, or a line for the config; empty where nothing is wrong."""


def good(subject: str, text: str) -> Finding:
    return Finding(subject, State.GOOD, text)


def doubtful(subject: str, text: str, mend: str) -> Finding:
    return Finding(subject, State.DOUBTFUL, text, mend)


def bad(subject: str, text: str, mend: str) -> Finding:
    return Finding(subject, State.BAD, text, mend)
