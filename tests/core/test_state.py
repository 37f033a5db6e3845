"""State and passes over it: recency order, reading while it changes, and what is given up when it grows too large."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.test_idle import steps

from headway.core.log import states as state_module
from headway.core.log.lanes.pool import Pool
from headway.core.log.states import ENTRY_BYTES, FORGET_ENTRIES, State, everything
from headway.core.message.keys import compile_key
from headway.core.message.record import SCAN_BYTES, SCAN_MAX, Properties, Record


def record(key: str, sequence: int, topic: str = "t") -> Record:
    return Record(topic, b'{"k":"%s"}' % key.encode(), sequence=sequence)


def a_state(memory: int = 10**9) -> State:
    return State("#", compile_key("/k"), Pool("p", memory, 0))


def filled(keys: str) -> State:
    """One record per letter, sequences from 1."""
    state = a_state()
    for sequence, key in enumerate(keys, 1):
        state.put(record(key, sequence))
    return state


@pytest.mark.parametrize(
    ("keys", "after", "upto", "expected"),
    [
        ("abc", 0, 3, [1, 2, 3]),
        ("abca", 0, 4, [2, 3, 4]),
        ("abcabc", 3, 6, [4, 5, 6]),
        ("abc", 1, 2, [2]),
        ("abc", 3, 3, []),
        ("", 0, 0, []),
        ("aaaa", 0, 4, [4]),
    ],
)
def test_a_pass_reads_what_changed_oldest_first(keys: str, after: int, upto: int, expected: list[int]) -> None:
    assert [r.sequence for r in filled(keys).read(after, upto)] == expected


def test_a_key_updated_before_the_pass_comes_to_it_is_left_to_the_lane() -> None:
    state = filled("abc")
    reader = state.read(0, 3)
    assert next(reader).sequence == 1
    state.put(record("b", 4))
    assert [r.sequence for r in reader] == [3]


def test_a_pass_that_was_read_to_the_end_goes_on_when_extended() -> None:
    state = filled("ab")
    reader = state.read(0, 2)
    assert [r.sequence for r in reader] == [1, 2]
    state.put(record("c", 3))
    reader.extend(3)
    assert [r.sequence for r in reader] == [3]


def test_beyond_its_limit_the_stalest_keys_go_and_a_pass_knows_what_it_missed() -> None:
    state = a_state(memory=4 * 3 * (ENTRY_BYTES + 20))
    for sequence, key in enumerate("abc", 1):
        state.put(record(key, sequence))
    reader = state.read(0, 3)
    grown = state.put(record("d", 4))
    assert state.get("t", "a") is None
    assert (reader.missed, state.evicted_records) == (1, 1)
    assert [r.sequence for r in reader] == [2, 3]
    assert grown == 0  # as much went as came


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.tuples(st.sampled_from("abcde"), st.booleans()), max_size=60),
    st.integers(0, 20),
)
def test_state_and_lane_together_lose_and_double_nothing(steps: list[tuple[str, bool]], start: int) -> None:
    """A pass read a step at a time, beside updates that its consumer gets live: the last value per key is right."""
    state = a_state()
    latest: dict[str, int] = {}
    got: list[tuple[str, int]] = []
    reader = None
    for sequence, (key, step) in enumerate(steps, 1):
        state.put(record(key, sequence))
        latest[key] = sequence
        if reader is None and sequence >= start:
            reader = state.read(0, sequence)
        elif reader is not None:
            got.append((key, sequence))
            if step and (one := next(reader, None)) is not None:
                got.append((one.payload.decode()[6], one.sequence))
    if reader is not None:
        got += [(one.payload.decode()[6], one.sequence) for one in reader]
        assert len({sequence for _, sequence in got}) == len(got)
        newest: dict[str, int] = {}
        for key, sequence in got:
            newest[key] = max(sequence, newest.get(key, 0))
        assert newest == latest


def test_a_state_that_is_over_goes_little_by_little_and_counts_no_more() -> None:
    state = a_state()
    keys = 10 * FORGET_ENTRIES + 1
    for number in range(keys):
        state.put(record(str(number), number + 1))
    steps = state.close()
    assert state.pool.memory_bytes == 0
    left = [keys, *(len(state) for _ in steps)]
    assert [before - after for before, after in pairwise(left)] == [FORGET_ENTRIES] * 10 + [1]


def test_where_a_pass_begins_is_looked_for_a_little_at_a_time() -> None:
    state = a_state()
    for number in range(1, 10 * SCAN_MAX + 1):
        state.put(record(str(number), number))
    reader = state.read(SCAN_MAX, 10 * SCAN_MAX)
    came = list(reader)
    found = [one.sequence for one in came if one is not None]
    assert found == list(range(SCAN_MAX + 1, 10 * SCAN_MAX + 1))
    assert came.index(next(one for one in came if one is not None)) == 9, "so many steps looked in vain"


def test_what_goes_while_a_pass_looks_for_its_place_is_missed() -> None:
    keys = 2 * SCAN_MAX
    state = a_state(memory=4 * keys * (ENTRY_BYTES + 20))
    for number in range(1, keys + 1):
        state.put(record(f"{number:04}", number))
    after = state.evicted_records + 10
    reader = state.read(after, keys)
    assert next(reader) is None
    while state.evicted_records < after + 10:
        number += 1
        state.put(record(f"{number:04}", number))
    assert reader.missed == 10
    assert [one.sequence for one in reader if one is not None] == list(range(after + 11, keys + 1))


@settings(deadline=None, max_examples=300)
@given(st.lists(st.tuples(st.sampled_from("abcde"), st.booleans()), max_size=60), st.integers(1, 20), st.integers(0, 9))
def test_a_pass_that_begins_somewhere_loses_nothing_while_the_state_changes(
    steps: list[tuple[str, bool]], start: int, before: int
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("headway.core.log.states.SCAN_MAX", 2)
        state, latest = a_state(), dict[str, int]()
        reader, upto, got = None, 0, list[Record]()
        for sequence, (key, step) in enumerate(steps, 1):
            state.put(record(key, sequence))
            latest[key] = sequence
            if reader is None and sequence >= start + before:
                reader, upto = state.read(start, sequence), sequence
            elif reader is not None and step and (one := next(reader, None)) is not None:
                got.append(one)
        if reader is not None:
            got += [one for one in reader if one is not None]
            sequences = [one.sequence for one in got]
            assert sequences == sorted(set(sequences))
            left = {sequence for sequence in latest.values() if start < sequence <= upto}
            assert left <= set(sequences) <= set(range(start + 1, upto + 1))
            assert not state.seeking


def deleted(key: str, sequence: int) -> Record:
    return Record("t", b"", Properties(user=(("key", key),)), sequence=sequence)


def test_a_delete_removes_its_key_and_stands_among_the_changes() -> None:
    state = filled("abc")
    state.change(deleted("b", 4))
    assert len(state) == 2
    assert [r.sequence for r in state.read(2, 4)] == [3, 4]
    assert [r.sequence for r in state.snapshot(4)] == [1, 3]
    state.change(record("b", 5))
    assert len(state) == 3
    assert [r.sequence for r in state.read(2, 5)] == [3, 5]
    state.check()


def test_a_snapshot_that_goes_on_has_the_deletes_that_came_meanwhile() -> None:
    state = filled("abc")
    state.change(deleted("a", 4))
    snapshot = state.snapshot(4)
    assert next(snapshot).sequence == 2
    state.change(deleted("b", 5))
    snapshot.extend(5)
    assert [r.sequence for r in snapshot] == [3, 5]


def test_an_empty_record_that_says_no_key_is_a_record_without_key() -> None:
    state = filled("ab")
    state.change(Record("t", b"", sequence=3))
    assert [r.sequence for r in state.snapshot(3)] == [1, 2, 3]


def test_deletes_go_first_and_a_pass_over_older_changes_knows_that_it_missed_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(state_module, "DELETES_MAX", 2)
    state = filled("abcd")
    reader, resting = state.read(2, 7), 4
    for sequence, key in enumerate("abc", 5):
        state.change(deleted(key, sequence))
    state.check()
    assert (len(state), state.evicted_records) == (1, 0)
    assert [r.sequence for r in reader if r is not None] == [4, 6, 7]
    assert reader.missed == 1
    assert state.read(resting, 7).missed == 1
    assert state.read(5, 7).missed == 0


def test_a_pass_that_stands_before_a_forgotten_delete_has_missed_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "DELETES_MAX", 2)
    state = filled("abcd")
    early, late = state.snapshot(4), state.snapshot(4)
    assert next(early).sequence == next(late).sequence == 1
    state.change(deleted("b", 5))
    for reader in (early, late):
        reader.extend(5)
    assert [r.sequence for r in late] == [3, 4, 5]
    for sequence in (6, 7):
        state.change(deleted(f"x{sequence}", sequence))
    assert [r.sequence for r in early] == [3, 4], "nobody tells it that b is no more"
    assert (early.missed, late.missed) == (1, 0)
    late.extend(7)
    assert [r.sequence for r in late] == [6, 7]
    assert late.missed == 0


def test_an_update_moves_all_passes_that_have_stopped_at_its_key_at_once() -> None:
    """Most of them stop at the oldest key, and the next update is mostly of that one."""
    state = filled("abcd")
    readers = [state.snapshot(4) for _ in range(50)]
    assert next(readers[0]).sequence == 1
    for sequence, key in enumerate("ab", 5):
        state.put(record(key, sequence))
    assert len({id(reader.place) for reader in readers}) == 1
    readers[1].close()
    state.put(record("c", 7))
    assert next(readers[2]).sequence == 4
    state.put(record("d", 8))
    assert [[r.sequence for r in reader] for reader in readers] == [[]] * 50
    for reader in (readers[0], readers[2]):
        reader.extend(8)
        assert [r.sequence for r in reader] == [5, 6, 7, 8]


@pytest.mark.parametrize("begin", ["stopped", "seeking"])
def test_an_eviction_costs_as_much_however_many_readers_have_stopped(begin: str) -> None:
    keys = 2 * SCAN_MAX

    def evicting(readers: int) -> int:
        state = a_state(memory=4 * keys * (ENTRY_BYTES + 20))
        number = 0
        while not state.evicted_records:
            number += 1
            state.put(record(f"{number:04}", number))
        accept = seen.append
        passes = [state.snapshot(number, accept) if begin == "stopped" else state.read(1, number, accept)  # type: ignore[arg-type]
                  for _ in range(readers)]  # fmt: skip
        del seen[:]
        lines = steps(lambda: state.put(record(f"{number + 1:04}", number + 1)))
        assert state.evicted_records == 2
        assert len(seen) == 1, "whether it is for them is asked once"
        assert len(passes) == readers
        return lines

    seen: list[Record] = []
    assert evicting(500) == evicting(5)


@pytest.mark.parametrize("most", [4, 4096])
def test_each_reader_counts_the_evictions_behind_its_place(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Of those that are too many to note each, all that may be behind it count."""
    monkeypatch.setattr("headway.core.log.states.EVICTIONS_MAX", most)
    state = a_state(memory=4 * 20 * (ENTRY_BYTES + 20))
    for number in range(1, 21):
        state.put(record(f"{number:02}", number))
    stopped, reading, done, selecting = (
        state.snapshot(20, accept) for accept in (everything, everything, everything, lambda one: one.sequence % 2 == 0)
    )
    assert [next(reading).sequence for _ in range(12)][-1] == 12
    assert len(list(done)) == 20
    for number in range(21, 31):
        state.put(record(f"{number:02}", number))
    later = state.snapshot(30)
    assert (stopped.missed, reading.missed, done.missed, selecting.missed, later.missed) == (10, 0, 0, 5, 0)
    for number in range(31, 41):
        state.put(record(f"{number:02}", number))
    assert (stopped.missed, done.missed, selecting.missed, later.missed) == (20, 0, 10, 10)
    assert reading.missed == (8 if most > 20 else 10)
    assert [list(one) for one in (stopped, reading, done, selecting)] == [[]] * 4
    assert [one.sequence for one in later] == list(range(21, 31))
    assert stopped.forgive() == 20
    assert stopped.missed == 0


def test_one_step_selects_a_few_large_records() -> None:
    state, looked = a_state(), list[int]()
    for number in range(1, 21):
        state.put(Record("t", b'{"k":%d,"v":"%s"}' % (number, b"x" * (SCAN_BYTES // 4)), sequence=number))
    reader = state.read(0, 20, lambda one: looked.append(one.sequence) or False)  # type: ignore[func-returns-value]
    assert next(reader) is None
    assert looked == [1, 2, 3, 4]
    assert list(reader) == [None] * 4
    assert looked == list(range(1, 21))
    whole = state.read(0, 20)
    assert len(whole.take(128)) == 4


def test_for_want_of_room_deletes_are_forgotten_before_keys() -> None:
    state = a_state(memory=4 * 3 * (ENTRY_BYTES + 250))
    for sequence, key in enumerate("ab", 1):
        state.put(record(key, sequence))
    for sequence in range(3, 50):
        state.change(deleted(f"x{sequence}", sequence))
    assert (len(state), state.evicted_records) == (2, 0)
    state.check()
