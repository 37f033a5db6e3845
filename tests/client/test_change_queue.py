"""The queue between an image and a reader: bounded, in order, and with or without conflation."""

from __future__ import annotations

from headway.client.change_queue import ChangeQueue
from headway.client.changes import Change, Current, Delete, Entry, Gap, Key, OutOfFocus, Put, Stale

A, B, C = Key("t", "a"), Key("t", "b"), Key("t", "c")


def entry(offset: int) -> Entry:
    return Entry(b"x", offset)


def taken(queue: ChangeQueue) -> list[Change]:
    found = []
    while (change := queue.take()) is not None:
        found.append(change)
    return found


def test_all_changes_come_in_order_and_those_without_room_later() -> None:
    queue = ChangeQueue(4, conflate=False)
    changes = [Put(A, entry(number)) for number in range(10)]
    queue.add(changes)
    assert (len(queue), queue.full, queue.roomy) == (4, True, False)
    queue.add((Gap(1, "conflated"),))
    assert taken(queue) == [*changes, Gap(1, "conflated")]
    assert (queue.full, queue.roomy) == (False, True)


def test_what_has_no_room_is_not_made() -> None:
    queue, made = ChangeQueue(2, conflate=False), []

    class Lazy:
        def __iter__(self) -> object:
            for number in range(5):
                made.append(number)
                yield Put(A, entry(number))

    queue.add(Lazy())  # type: ignore[arg-type]
    assert made == [0, 1]
    queue.take()
    assert made == [0, 1, 2]


def test_of_stale_and_current_the_last_counts() -> None:
    queue = ChangeQueue(9, conflate=False)
    queue.add((Stale("x"), Put(A, entry(1)), Current(1), Put(B, entry(2)), Stale("y")))
    assert taken(queue) == [Put(A, entry(1)), Put(B, entry(2)), Stale("y")]


def test_conflated_changes_of_a_key_are_one() -> None:
    queue, old = ChangeQueue(9, conflate=True), entry(0)
    queue.add((
        Put(A, entry(1), old), Put(B, entry(2)), Put(A, entry(3), entry(1)), Gap(1, "conflated"),
        Delete(B, entry(2)), Put(C, entry(5), old), OutOfFocus(C, entry(5), "changed"),
        Delete(A, entry(3)), Put(A, entry(9)),
    ))  # fmt: skip
    assert taken(queue) == [Put(A, entry(9), old), Gap(1, "conflated"), OutOfFocus(C, old, "changed")]
