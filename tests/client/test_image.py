"""The image of a view: what it shows after what came, and what it tells of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headway.client.changes import Current, Delete, Entry, Gap, Key, OutOfFocus, Put, Stale
from headway.client.image import Changes, Image, Sent

A, B, C, D = (Key("t", name) for name in "abcd")
LIMIT_S = 5.0


def entry(offset: int, text: str = "") -> Entry:
    return Entry((text or str(offset)).encode(), offset)


def all_sent(offset: int) -> Sent:
    return Sent(offset, 0.0, offset)


def shown(image: Image) -> dict[str | None, int]:
    return {key.key: found.offset for key, found in image.entries.of.items()}


def opened(*keys: Key) -> Image:
    """An image with a snapshot of these keys, at offsets 1, 2, ..., as of offset 10, at time 0."""
    image = Image(LIMIT_S)
    image.begin()
    image.granted(10)
    for at, key in enumerate(keys):
        assert list(image.put(key, entry(at + 1))) == []
    told = list(image.proved(all_sent(10), 0.0, 0.0))
    assert told == [*(Put(key, entry(at + 1)) for at, key in enumerate(keys)), Current(10)]
    return image


STORIES: list[tuple[str, Callable[[Image], list[Changes]], list[object], dict[str, int]]] = [
    ("a new key", lambda i: [i.put(B, entry(11))], [Put(B, entry(11))], {"a": 1, "b": 11}),
    ("a change", lambda i: [i.put(A, entry(11))], [Put(A, entry(11), entry(1))], {"a": 11}),
    ("a repetition", lambda i: [i.put(A, entry(11)), i.put(A, entry(11))], [Put(A, entry(11), entry(1))], {"a": 11}),
    ("a delete", lambda i: [i.delete(A, 11)], [Delete(A, entry(1))], {}),
    ("a delete of nothing", lambda i: [i.delete(B, 11)], [], {"a": 1}),
    ("out of focus", lambda i: [i.out_of_focus(A, 11, "changed"), i.out_of_focus(B, 12, "changed")],
     [OutOfFocus(A, entry(1), "changed")], {}),
    ("a conflated gap", lambda i: [i.gap(Gap(3, "conflated", 12)), i.put(A, entry(13))],
     [Gap(3, "conflated", 12), Put(A, entry(13), entry(1))], {"a": 13}),
    ("a gap from before the snapshot", lambda i: [i.gap(Gap(3, "discarded", 10)), i.put(B, entry(13))],
     [Gap(3, "discarded", 10), Put(B, entry(13))], {"a": 1, "b": 13}),
    ("a gap: nothing more is believed", lambda i: [i.gap(Gap(3, "discarded", 12)), i.put(A, entry(13))],
     [Gap(3, "discarded", 12), Stale("records are missing (discarded)")], {"a": 1}),
    ("a cut: nothing more is believed", lambda i: [i.cut("gone"), i.cut("gone"), i.put(A, entry(13))],
     [Stale("gone")], {"a": 1}),
    ("half a snapshot is not seen", lambda i: [i.cut("x"), i.begin() or [], i.put(B, entry(20))], [Stale("x")],
     {"a": 1}),
    ("a snapshot takes the place", lambda i: [i.cut("x"), i.begin() or [], i.put(B, entry(20)),
                                              i.proved(all_sent(20), 1.0, 1.0)],
     [Stale("x"), Delete(A, entry(1)), Put(B, entry(20)), Current(20)], {"b": 20}),
    ("only what is different is told", lambda i: [i.cut("x"), i.begin() or [], i.put(A, entry(1)),
                                                  i.put(B, entry(2)), i.proved(all_sent(20), 1.0, 1.0)],
     [Stale("x"), Put(B, entry(2)), Current(20)], {"a": 1, "b": 2}),
    ("offsets of another life", lambda i: [i.cut("x"), i.begin() or [], i.put(A, Entry(b"other", 1)),
                                           i.proved(all_sent(3), 1.0, 1.0)],
     [Stale("x"), Put(A, Entry(b"other", 1), entry(1)), Current(3)], {"a": 1}),
    ("a cut in a snapshot", lambda i: [i.cut("x"), i.begin() or [], i.put(B, entry(20)), i.cut("y"),
                                       i.proved(all_sent(20), 1.0, 1.0)], [Stale("x")], {"a": 1}),
    ("resumption", lambda i: [i.cut("x"), i.resume() or [], i.put(A, entry(10)), i.put(B, entry(20)), i.look(1.0),
                              i.proved(all_sent(20), 1.0, 1.0)],
     [Stale("x"), Put(B, entry(20)), Current(20)], {"a": 1, "b": 20}),
    ("a gap in a resumption is not told", lambda i: [i.cut("x"), i.resume() or [], i.gap(Gap(0, "not_retained", 19)),
                                                     i.begin() or [], i.put(A, entry(20)),
                                                     i.proved(all_sent(20), 1.0, 1.0)],
     [Stale("x"), Put(A, entry(20), entry(1)), Current(20)], {"a": 20}),
    ("nor is one that harms nothing", lambda i: [i.cut("x"), i.resume() or [], i.gap(Gap(3, "conflated", 19)),
                                                 i.put(A, entry(20)), i.proved(all_sent(20), 1.0, 1.0)],
     [Stale("x"), Put(A, entry(20), entry(1)), Current(20)], {"a": 20}),
    ("resumption never goes back", lambda i: [i.put(A, entry(12)), i.put(A, entry(15)), i.cut("x"), i.resume() or [],
                                              i.put(A, entry(12))],
     [Put(A, entry(12), entry(1)), Put(A, entry(15), entry(12)), Stale("x")], {"a": 15}),
    ("time", lambda i: [i.look(5.0), i.look(5.1), i.look(5.2), i.proved(all_sent(10), 5.2, 5.3)],
     [Stale("the broker has not confirmed it for 5 s"), Current(10)], {"a": 1}),
    ("what waits in the broker is old", lambda i: [i.proved(Sent(10, 6.0, 12), 10.0, 10.1)],
     [Stale("the broker has not confirmed it for 5 s")], {"a": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("act", "told", "left"), [story[1:] for story in STORIES], ids=[s[0] for s in STORIES])
def test_what_it_tells_and_shows(
    act: Callable[[Image], list[Changes]], told: list[object], left: dict[str, int]
) -> None:
    image = opened(A)
    assert [change for group in act(image) for change in group] == told
    assert shown(image) == left


def test_a_snapshot_that_was_overtaken_waits_for_what_overtook_it() -> None:
    """A key that changes while the snapshot is sent is not in it: its change comes behind."""
    image = opened(A, B)
    image.cut("x")
    image.begin()
    image.granted(20)
    image.put(B, entry(2))
    assert list(image.proved(Sent(20, 1.0, 25), 3.0, 3.0)) == []
    assert shown(image) == {"a": 1, "b": 2}
    image.put(A, entry(23))
    assert list(image.proved(Sent(24, 0.5, 30), 4.0, 4.0)) == []
    image.put(A, entry(25))
    told = list(image.proved(Sent(26, 0.5, 31), 5.0, 5.0))
    assert told == [Put(A, entry(25), entry(1)), Current(26)]
    assert image.stale_s(5.0) == 0.5


def test_a_new_image_is_told_as_it_was_however_late_it_is_read() -> None:
    """A reader takes some of its changes, and more records come before it takes the rest."""
    image = opened(A)
    image.cut("gone")
    image.begin()
    image.granted(20)
    for at, key in enumerate((A, B, C)):
        image.put(key, entry(15 + at))
    told = iter(image.proved(all_sent(20), 1.0, 1.0))
    found = [next(told)]
    later = [*image.put(B, entry(21)), *image.put(D, entry(22))]
    found += told
    assert found == [Put(A, entry(15), entry(1)), Put(B, entry(16)), Put(C, entry(17)), Current(20)]
    assert later == [Put(B, entry(21), entry(16)), Put(D, entry(22))]


def test_it_says_how_old_it_is() -> None:
    image = Image(LIMIT_S)
    assert image.stale_s(7.0) == float("inf")
    assert not image.is_current(7.0)
    image = opened(A)
    assert (image.stale_s(3.0), image.is_current(3.0), image.is_current(6.0)) == (3.0, True, False)
    image.cut("x")
    assert (image.stale_s(3.0), image.is_current(3.0), image.why_stale) == (3.0, False, "x")
    image.proved(all_sent(50), 4.0, 4.0)
    assert image.stale_s(4.0) == 4.0, "a proof of a subscription that is over proves nothing"


def test_a_delta_is_merged_into_what_is_known() -> None:
    image = opened()
    whole = Entry(b'{"k":"a","n":1.0,"gone":7,"deep":{"x":1,"y":2}}', 11, (("p", "1"),), "c")
    image.put(A, whole)
    change = Entry(b'{"k":"a","gone":null,"deep":{"y":3}}', 12, (("p", "2"),))
    merged = Entry(b'{"k":"a","n":1.0,"deep":{"x":1,"y":3}}', 12, (("p", "2"),))
    assert list(image.patch(A, change)) == [Put(A, merged, whole)]
    assert list(image.patch(A, change)) == [], "a repetition"
    assert image.entries.of == {A: merged}


def test_deltas_behind_a_snapshot_are_of_what_it_has() -> None:
    image = opened(A)
    image.cut("x")
    image.begin()
    image.granted(20)
    image.put(B, Entry(b'{"v":1,"w":1}', 12))
    assert list(image.patch(B, Entry(b'{"v":2}', 21))) == []
    assert shown(image) == {"a": 1}
    new = Entry(b'{"v":2,"w":1}', 21)
    assert list(image.proved(all_sent(21), 1.0, 1.0)) == [Delete(A, entry(1)), Put(B, new), Current(21)]


def test_a_value_may_be_larger_and_deeper_than_a_publisher_may_patch() -> None:
    image, deep = opened(), b'{"a":' * 90 + b"1" + b"}" * 90
    image.put(A, Entry(b'{"fill":"%b"}' % (b"." * 2_000_000), 11))
    image.patch(A, Entry(b'{"deep":%b}' % deep, 12))
    assert not image.wants_snapshot
    assert image.entries.of[A].json()["deep"]["a"]["a"] == Entry(deep, 0).json()["a"]["a"]


@pytest.mark.parametrize(("base", "patch"), [(None, b"{}"), (b"[]", b"{}"), (b"{}", b"[1]")])
def test_a_delta_of_something_else_wants_a_new_snapshot(base: bytes | None, patch: bytes) -> None:
    image = opened()
    if base is not None:
        image.put(A, Entry(base, 11))
    why = "a delta came that nothing is known to merge with"
    assert list(image.patch(A, Entry(patch, 12))) == [Stale(why)]
    assert image.wants_snapshot
    assert list(image.put(A, entry(13))) == []


def page() -> Image:
    """An image of a page with A and B, B first, as of offset 10, at time 0."""
    image = Image(LIMIT_S, marked=True)
    image.begin()
    image.granted(10)
    assert not list(image.proved(all_sent(10), 0.0, 0.0)), "the marks say when it is whole"
    image.begin_mark()
    image.put(B, entry(2))
    image.put(A, entry(1))
    assert list(image.end_mark(10)) == [Put(B, entry(2)), Put(A, entry(1))]
    assert list(image.proved(all_sent(10), 0.0, 0.0)) == [Current(10)]
    return image


def test_a_page_is_what_came_between_marks_in_any_order_of_offsets() -> None:
    assert shown(page()) == {"a": 1, "b": 2}


def test_a_page_that_comes_anew_takes_the_place_of_the_last_one_when_it_is_whole() -> None:
    image = page()
    image.begin_mark()
    assert list(image.put(B, entry(12))) == []
    assert list(image.proved(all_sent(12), 2.0, 2.0)) == []
    assert shown(image) == {"a": 1, "b": 2}
    assert image.stale_s(2.0) == 2.0
    assert list(image.end_mark(12)) == [Delete(A, entry(1)), Put(B, entry(12), entry(2))]
    assert list(image.put(A, entry(12))) == [], "that was before the mark"
    assert list(image.out_of_focus(B, 13, "left_page")) == [OutOfFocus(B, entry(12), "left_page")]


def test_a_cut_between_marks_leaves_the_page_as_it_was() -> None:
    image = page()
    image.begin_mark()
    image.put(B, entry(12))
    assert list(image.cut("gone")) == [Stale("gone")]
    assert list(image.end_mark(12)) == []
    assert shown(image) == {"a": 1, "b": 2}
