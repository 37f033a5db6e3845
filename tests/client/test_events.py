"""Events: what user properties of the broker, and those that a publisher made up, mean for an image."""

from __future__ import annotations

import pytest

from headway.client.changes import Current, Delete, Entry, Gap, Key, OutOfFocus, Put
from headway.client.events import tell
from headway.client.image import Image, Sent
from headway.core.message import Properties, Run, compile_key

A = Key("t", "a")
OLD = Entry(b'{"k":"a","v":1}', 3)
NEW = b'{"k":"a","v":2}'
Pairs = tuple[tuple[str, str], ...]
OFFSET = (("offset", "8"),)
EVENT, TOLD = "headway-event", ("headway-key", "a")
GAP = (("gap-records", "2"), ("gap-reason", "conflated"), ("gap-first", "5"), ("gap-last", "6"))


def run(payload: bytes, user: Pairs, content_type: str | None = None) -> Run:
    return Run("t", payload, [len(payload)], [0], properties=Properties(content_type=content_type, user=user))


def image() -> Image:
    made = Image(5.0)
    made.begin()
    made.put(A, OLD)
    assert list(made.proved(Sent(4, 0.0, 4), 0.0, 0.0)) == [Put(A, OLD), Current(4)]
    return made


@pytest.mark.parametrize(
    ("payload", "user", "told"),
    [
        (NEW, OFFSET, [Put(A, Entry(NEW, 8), OLD)]),
        (NEW, (("offset", "3"),), []),
        (NEW, (("p", "1"), *OFFSET), [Put(A, Entry(NEW, 8, (("p", "1"),)), OLD)]),
        (NEW, (("offset", "99"), *OFFSET), [Put(A, Entry(NEW, 8, (("offset", "99"),)), OLD)]),
        (NEW, (TOLD, *OFFSET), [Put(A, Entry(NEW, 8), OLD)]),
        (NEW, (*OFFSET, *GAP), [Gap(2, "conflated", 6), Put(A, Entry(NEW, 8), OLD)]),
        (b"", ((EVENT, "delete"), TOLD, *OFFSET), [Delete(A, OLD)]),
        (NEW, ((EVENT, "delete"), *OFFSET), [Delete(A, OLD)]),
        (b"", ((EVENT, "out_of_focus"), TOLD, ("headway-why", "changed"), *OFFSET), [OutOfFocus(A, OLD, "changed")]),
        (b'{"v":2}', (("p", "1"), (EVENT, "delta"), TOLD, *OFFSET), [Put(A, Entry(NEW, 8, (("p", "1"),)), OLD)]),
        (b'{"v":2}', ((EVENT, "delta"), TOLD, *OFFSET, *GAP),
         [Gap(2, "conflated", 6), Put(A, Entry(NEW, 8), OLD)]),
        (b'{"v":2}', ((EVENT, "delta"), TOLD, ("offset", "3")), []),
    ],
)  # fmt: skip
def test_what_a_record_means(payload: bytes, user: Pairs, told: list[object]) -> None:
    assert tell(image(), [run(payload, user)], compile_key("/k"), deltas=True) == told


def test_who_has_not_asked_for_deltas_takes_none_from_a_publisher() -> None:
    user = ((EVENT, "delta"), *OFFSET)
    assert tell(image(), [run(NEW, user)], compile_key("/k")) == [Put(A, Entry(NEW, 8, user[:1]), OLD)]


def test_records_are_told_in_order_and_keep_their_content_type() -> None:
    runs = [run(NEW, OFFSET, "c"), run(b"", ((EVENT, "delete"), TOLD, ("offset", "9"))), run(NEW, (("offset", "10"),))]
    new = Entry(NEW, 8, (), "c")
    assert tell(image(), runs, compile_key("/k")) == [Put(A, new, OLD), Delete(A, new), Put(A, Entry(NEW, 10))]


@pytest.mark.parametrize("user", [(), (("p", "1"),), (("offset", "x"),), ((EVENT, "delta"), TOLD)])
def test_a_record_without_an_offset_is_an_error(user: Pairs) -> None:
    with pytest.raises(ValueError, match=r"offset|invalid literal"):
        tell(image(), [run(NEW, user)], compile_key("/k"))
