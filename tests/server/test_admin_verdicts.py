"""How an answer of the history is cut, so that neither the loop nor the memory notices how long the history is."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, repeat

from headway.server.admin.verdicts import CHUNK_BYTES, PORTION, _chunks, _first
from headway.store.history import EntryKind, Found, HistoryEntry, encode_entry

ENTRY = HistoryEntry(
    wall_s=1.0, time="t", kind=EntryKind.VERDICT, run="r", client="c", reason="blocked", text="x" * 200
)
FOUND = Found(ENTRY, encode_entry(ENTRY))


class Counted:
    """Entries, and how many were taken."""

    def __init__(self) -> None:
        self.taken = 0

    def __iter__(self) -> Iterator[Found | None]:
        for one in repeat(FOUND):
            self.taken += 1
            yield one


def test_a_chunk_is_ready_as_soon_as_it_is_large_enough() -> None:
    source = Counted()
    chunks = _chunks(iter(source), 10_000)
    first = next(chunks)
    assert CHUNK_BYTES <= len(first) < CHUNK_BYTES + 1_000
    assert source.taken == first.count(b"\n"), "nothing is read ahead of the client"


def test_no_more_than_asked_for() -> None:
    source = Counted()
    lines = b"".join(_chunks(iter(source), 700)).splitlines()
    assert lines == [FOUND.line] * 700
    assert source.taken == 700


def test_while_nothing_is_found_the_loop_has_its_turn() -> None:
    nothing: Iterator[Found | None] = chain(repeat(None, 3 * PORTION), [FOUND])
    assert list(_chunks(nothing, 10)) == [b"", b"", b"", FOUND.line + b"\n"]
    assert list(_chunks(iter(()), 10)) == [b""]


def test_why_takes_the_latest_and_no_more() -> None:
    source = Counted()
    assert _first(iter(source), 3) == [ENTRY] * 3
    assert source.taken == 3
