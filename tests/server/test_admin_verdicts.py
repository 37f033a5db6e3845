"""How an answer of the history is cut, so that neither the loop nor the memory notices how long the history is."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, repeat

import pytest
from aiohttp.test_utils import make_mocked_request
from tests.server.amqp_stage import House

from headway.server.admin.verdicts import CHUNK_BYTES, PORTION, SEARCHES_MAX, Verdicts, _chunks, _parts
from headway.server.http import Refusal
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
    assert list(_parts(iter(source), 3)) == [[ENTRY] * 3]
    assert source.taken == 3


def test_while_why_finds_nothing_other_searches_have_their_turn() -> None:
    nothing: Iterator[Found | None] = chain([FOUND], repeat(None, 2 * PORTION), [FOUND])
    assert list(_parts(nothing, 10)) == [[ENTRY], [], [ENTRY]]


def test_why_is_one_of_the_searches_of_which_there_are_so_many_at_most() -> None:
    asked = Verdicts(House())
    asked._seats._clients["others"] = SEARCHES_MAX
    with pytest.raises(Refusal) as refused:
        asked._past(make_mocked_request("GET", "/v1/why/ann"), "ann", EntryKind.VERDICT).send(None)
    assert refused.value.status == 503
    asked.close()
