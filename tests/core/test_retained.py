"""Retained records: the last of each topic, within limits, and lazily to whom they are for."""

from __future__ import annotations

from typing import Any

import pytest

from headway.core.base.errors import Reason, Refused
from headway.core.log.states import FIRST_LOOK, Retained
from headway.core.message import topics as topic_tree
from headway.core.message.record import SCAN_BYTES, SCAN_MAX, Record


def record(topic: str, payload: bytes = b"x", sequence: int = 1, **more: Any) -> Record:
    return Record(topic, payload, retain=True, sequence=sequence, **more)


def read(retained: Retained, filter: str = "#", upto: int = 99, now: float = 0.0) -> list[tuple[str, bytes]]:
    found = retained.matching(filter, upto, now, lambda r: r.payload != b"unwanted")
    return sorted((r.topic, r.payload) for r in found) if found is not None else []


@pytest.mark.parametrize(
    ("put", "expected"),
    [
        ([record("a")], [("a", b"x")]),
        ([record("a"), record("a", b"y")], [("a", b"y")]),
        ([record("a"), record("b"), record("a", b"")], [("b", b"x")]),
        ([record("a", b"")], []),
        ([record("a", b"unwanted"), record("b")], [("b", b"x")]),
        ([record("a", expires_s=5.0), record("b", expires_s=15.0)], [("b", b"x")]),
        ([record("a", sequence=100), record("b", sequence=99)], [("b", b"x")]),
    ],
)
def test_what_a_subscriber_is_given(put: list[Record], expected: list[tuple[str, bytes]]) -> None:
    retained = Retained()
    for one in put:
        retained.put(one)
    assert read(retained, now=10.0) == expected


def test_one_that_is_replaced_meanwhile_comes_by_the_lane() -> None:
    retained = Retained()
    for topic in "abc":
        retained.put(record(topic, sequence=1))
    walk = retained.matching("#", 1, 0.0, lambda r: True)
    assert walk is not None
    first = next(walk)
    for topic in "abc":
        retained.put(record(topic, b"newer", sequence=2))
    assert first.payload == b"x"
    assert list(walk) == []


def test_full_refuses_new_topics_and_updates_known_ones() -> None:
    retained = Retained(topics_max=2, bytes_max=12)
    retained.put(record("a", b"1234"))
    retained.put(record("b", b"1234"))
    for refused in (record("c", b""), record("c"), record("a", b"1234567")):
        if refused.payload:
            with pytest.raises(Refused) as caught:
                retained.put(refused)
            assert caught.value.reason is Reason.MEMORY_LIMIT
        else:
            retained.put(refused)
    retained.put(record("a", b"12"))
    retained.put(record("b", b"12345678"))
    assert (len(retained), retained.bytes) == (2, 12)
    retained.put(record("b", b""))
    assert (len(retained), retained.bytes) == (1, 3)


def test_one_step_selects_a_few_large_records() -> None:
    retained, looked = Retained(100, 10**9), list[str]()
    for number in range(20):
        retained.put(record(f"t/{number}", b"x" * (SCAN_BYTES // 4)))
    found = retained.matching("#", 99, 0.0, lambda one: looked.append(one.topic) or False)  # type: ignore[func-returns-value]
    assert found is not None
    assert next(found) is None
    assert len(looked) == 4
    assert set(found) == {None}
    assert len(looked) == 20


def test_subscriber_pays_for_a_walk_only_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first look is part of the SUBSCRIBE, which counts as the same work whatever the filter matches."""
    retained, selected, children = Retained(), list[str](), [0]

    class Counted(topic_tree._TreeNode[Record]):
        __slots__ = ()

        def __getattribute__(self, name: str) -> Any:
            children[0] += name == "children"
            return super().__getattribute__(name)

    monkeypatch.setattr(topic_tree, "_TreeNode", Counted)
    for number in range(4 * SCAN_MAX):
        retained.put(record(f"t/{number}/a"))
    children[0] = 0
    walk = retained.matching("t/+/b", 99, 0.0, lambda one: True)
    assert walk is not None
    assert children[0] <= 3 * FIRST_LOOK
    chosen = retained.matching("#", 99, 0.0, lambda one: selected.append(one.topic) or False)  # type: ignore[func-returns-value]
    assert chosen is not None
    assert not selected, "a selector may take long: it looks at records later"
    while next(walk, True) is None:
        assert children[0] <= 4 * SCAN_MAX
        children[0] = 0
