"""Entries: what the journal is to keep of the changes of one turn."""

from __future__ import annotations

from typing import NamedTuple

from headway.core.message import Run


class CommittedPosition(NamedTuple):
    """The position of a durable subscription or queue, as the journal has it.

    All of its records before sequence ``upto`` are settled. ``settled`` holds more of them: pairs of first and last
    sequence, of the ranges that were settled since the last committed position. ``unsent`` is the sequence of the first
    record that was never sent; 0 means that the consumer was conflated and its part of the state is unknown."""

    number: int
    upto: int
    unsent: int
    settled: tuple[int, ...]


class JournaledRun(NamedTuple):
    stream: str
    run: Run
    sequence: int
    """The sequence of the run's first record."""
    publisher: str
    """The client's name, or its origin."""


class MetadataChange(NamedTuple):
    """A change of the metadata at ``sequence``: an object of kind ``what`` with this ``name`` now has these ``terms``.
    ``terms`` None means that the object was deleted."""

    sequence: int
    what: str
    name: object
    terms: object


class Commit(NamedTuple):
    """Entries that are written and synced together."""

    number: int
    runs: list[JournaledRun]
    changes: list[MetadataChange]
    positions: list[CommittedPosition]
    retained: list[str]
    """Topics whose retained record has changed."""
    sequence: int
    """The last sequence at the time of the commit."""
