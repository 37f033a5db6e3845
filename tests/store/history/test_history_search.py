"""Search in the history: whatever the blocks and the files, it finds what a look at every line finds, newest first."""

from __future__ import annotations

import tempfile
from datetime import datetime
from itertools import count
from math import inf
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.base import Cause, ConfigError
from headway.store import history as module
from headway.store.history import (
    EntryKind,
    HistoryEntry,
    Query,
    decode_entry,
    encode_entry,
    matcher,
    parse_moment,
    search,
    utc,
)

START_S = 1_795_000_000.0
CLIENTS = ["a", "ab", "display/7", 'q"uote', "ünal", "a*", "[x]"]
numbers = count(1)


def made(step: float, client: str, cause: Cause | None, kind: EntryKind, action: str, text: str) -> HistoryEntry:
    wall_s = START_S + step
    return HistoryEntry(wall_s=wall_s, time=utc(wall_s), kind=kind, run="r", client=client, number=next(numbers),
                        cause=cause, action=action, reason="blocked", text=text)  # fmt: skip


entries = st.builds(
    made, st.just(0.0), st.sampled_from(CLIENTS), st.sampled_from([None, *Cause]), st.sampled_from(list(EntryKind)),
    st.sampled_from(["notify", "disconnect"]), st.sampled_from(["", "a", "x" * 300, '"client":"a"']),
)
queries = st.builds(
    Query, since_s=st.just(-inf) | st.integers(0, 40).map(lambda step: START_S + step),
    until_s=st.just(inf) | st.integers(0, 40).map(lambda step: START_S + step),
    client=st.sampled_from(["", "a", "a*", "display/*", "*n?l", "ünal", 'q"uote', "[[]x]", "nobody"]),
    exact=st.booleans(), cause=st.sampled_from(["", *Cause]), action=st.sampled_from(["", "disconnect"]),
    kinds=st.sampled_from([(EntryKind.VERDICT,), (EntryKind.END,), tuple(EntryKind)]),
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.lists(entries, max_size=40), queries, st.sampled_from([70, 200, 1000]), st.integers(1, 15))
def test_it_finds_what_a_look_at_every_line_finds(
    drawn: list[HistoryEntry], query: Query, block_bytes: int, file_lines: int
) -> None:
    # Each has a time of its own, in the order in which they were drawn.
    told = [made(step, one.client, one.cause, one.kind, one.action, one.text) for step, one in enumerate(drawn)]
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name)
        patch.setattr(module, "BLOCK_BYTES", block_bytes)
        for kind in EntryKind:
            lines = [encode_entry(one) for one in told if one.kind is kind]
            for number, first in enumerate(range(0, len(lines), file_lines), 1):
                text = b"torn}\n" + b"\n".join(lines[first : first + file_lines]) + b'\n{"wall_s":1,"cli'
                (folder / f"{kind}s-{number:08d}.jsonl").write_bytes(text)
        found = [one.entry for one in search(folder, query) if one is not None]
    test = matcher(query)
    assert found == [one for one in reversed(told) if test(one)]


@pytest.mark.parametrize(
    ("query", "client", "fits"),
    [
        (Query(client="a*"), "ab", True),
        (Query(client="a*", exact=True), "ab", False),
        (Query(client="a*", exact=True), "a*", True),
        (Query(client="a"), "ab", False),
        (Query(client="display-?"), "display-7", True),
        (Query(cause=Cause.NETWORK), "a", False),
        (Query(kinds=(EntryKind.END,)), "a", False),
        (Query(), "whoever", True),
        (Query(since_s=START_S, until_s=START_S), "a", True),
        (Query(since_s=START_S + 0.001), "a", False),
        (Query(until_s=START_S - 0.001), "a", False),
    ],
)
def test_what_matches(query: Query, client: str, fits: bool) -> None:
    entry = made(0.0, client, Cause.BROKER, EntryKind.VERDICT, "notify", "")
    assert matcher(query)(entry) == fits


def test_a_client_that_was_not_let_in_is_found_by_its_user() -> None:
    refused = HistoryEntry(wall_s=1.0, time="", kind=EntryKind.END, run="r", client="", user="alice",
                           reason="not_authorized", admitted=False)  # fmt: skip
    assert matcher(Query(client="alice", kinds=(EntryKind.END,)))(refused)
    assert not matcher(Query(client="bob", kinds=(EntryKind.END,)))(refused)


def test_a_long_file_is_read_in_blocks_and_not_beyond_what_is_asked_for(tmp_path: Path) -> None:
    lines = [encode_entry(made(step, "a", None, EntryKind.VERDICT, "notify", "x" * 500)) for step in range(3000)]
    (tmp_path / "verdicts-00000001.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    everything = list(search(tmp_path, Query()))
    assert sum(one is None for one in everything) >= 6, "a pause after each block"
    lately = list(search(tmp_path, Query(since_s=START_S + 2990)))
    assert [one.entry.wall_s - START_S for one in lately if one is not None] == [*range(2999, 2989, -1)]
    assert sum(one is None for one in lately) == 0, "it ends in the first block"
    assert sum(one is not None for one in search(tmp_path, Query(client="b"))) == 0


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_is_found_by_its_name_whatever_characters_it_has(tmp_path: Path, client: str) -> None:
    lines = [encode_entry(made(0.0, name, None, EntryKind.VERDICT, "notify", "")) for name in CLIENTS]
    (tmp_path / "verdicts-00000001.jsonl").write_bytes(b"\n".join(lines))
    found = [one.entry.client for one in search(tmp_path, Query(client=client, exact=True)) if one is not None]
    assert found == [client]


def test_a_folder_that_is_not_there_has_nothing(tmp_path: Path) -> None:
    assert list(search(tmp_path / "none", Query(kinds=tuple(EntryKind)))) == []


def test_a_line_of_a_later_release_is_read_as_far_as_it_is_known() -> None:
    line = b'{"wall_s":1.5,"time":"t","kind":"verdict","run":"r","client":"c","reason":"blocked","mood":"grim"}'
    entry = decode_entry(line)
    assert entry is not None
    assert (entry.wall_s, entry.client, entry.reason) == (1.5, "c", "blocked")
    assert decode_entry(b'{"wall_s":1.5}') is None
    assert decode_entry(b"\xff\xfe") is None


NOW_S = 1_795_400_000.0


@pytest.mark.parametrize(
    ("text", "back_s"), [("8h", 28_800.0), ("1h 30m", 5400.0), (str(NOW_S - 7), 7.0), ("0", 0.0)]
)
def test_a_moment_is_so_long_ago_or_seconds_since_1970(text: str, back_s: float) -> None:
    assert parse_moment(text, NOW_S) == NOW_S - back_s


def test_a_time_of_day_is_the_last_one() -> None:
    for text in ("03:00", "23:59", "12:00:30"):
        assert 0 <= NOW_S - parse_moment(text, NOW_S) < 90_000
    assert parse_moment("2026-11-23T03:00:00Z", NOW_S) == 1_795_402_800.0


def _at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("since", "until", "says"),
    [
        ("1h", "23:59", "2026-11-23 23:59"),
        ("24h", "06:00", "2026-11-23 06:00"),
        ("08:00", "23:00", "2026-11-23 23:00"),
        ("22:00", "06:00", "2026-11-23 06:00"),
        ("22:00", "23:00", "2026-11-22 23:00"),
        ("2026-11-20 22:00", "23:00", "2026-11-23 23:00"),
        ("", "23:00", "2026-11-23 23:00"),
        ("8h", "2h", "2026-11-23 16:00"),
    ],
)
def test_end_of_a_span_may_be_later_today(since: str, until: str, says: str) -> None:
    assert parse_moment(until, _at("2026-11-23 18:00"), since) == _at(says)


@pytest.mark.parametrize("text", ["yesterday", "", "25:00", "8 hours ago", "8", "-5"])
def test_what_is_no_moment_is_said(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a time such as"):
        parse_moment(text, NOW_S)
