"""Rankings: the one that holds the most is found, whatever came and went meanwhile."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.core.lanes import Handle, append, lane

from headway.core.base.tables import Ranking
from headway.core.log.lanes.cursor import Cursor

NAMES = "abcdef"


@given(st.lists(st.tuples(st.sampled_from(["hold", "forget", "rest", "wake", "most"]), st.sampled_from(NAMES),
                          st.integers(0, 9)), max_size=80))  # fmt: skip
def test_the_most_of_those_who_neither_rest_nor_were_forgotten(steps: list[tuple[str, str, int]]) -> None:
    holds = dict.fromkeys(NAMES, 0)
    there: dict[str, None] = {}
    resting: dict[str, int] = {}
    ranking = Ranking(lambda name: holds[name])
    for now, (what, name, amount) in enumerate(steps):
        if what == "hold":
            grew = amount > holds[name]
            holds[name] = amount
            if grew:  # who shrinks does not say so
                ranking.put(name)
                there[name] = None
        elif what == "forget":
            ranking.forget(name)
            there.pop(name, None)
            resting.pop(name, None)
        elif what == "rest" and name in there:
            ranking.rest(name, now + 5)
            resting[name] = now + 5
        elif what == "wake":
            ranking.wake(now)
            resting = {one: until for one, until in resting.items() if until > now}
        awake = [holds[one] for one in there if one not in resting]
        found = ranking.most(1 + amount if what == "most" else 1)
        most = max(awake, default=0)
        if most < (1 + amount if what == "most" else 1):
            assert found is None
        else:
            assert found is not None
            assert holds[found] == most


def test_a_lane_that_was_sent_to_disk_whole_is_found_again_when_it_grows() -> None:
    filled = lane()
    Cursor(filled)
    ranking = filled.pool.resident
    for records in (100, 20, 10):
        append(filled, *[1000] * records)
        assert ranking.most() is filled
        chunks = filled.spillable(10**9, lambda _: True)
        ranking.forget(filled)
        ranking.put(filled)
        assert ranking.most() is None, "all of it is on its way"
        for chunk in chunks:
            filled.spilled(chunk, Handle(bytes(chunk.data)), chunk.size)


def test_a_lane_whose_disk_failed_is_found_again() -> None:
    filled = lane()
    Cursor(filled)
    append(filled, *[1000] * 100)
    chunks = filled.spillable(10**9, lambda _: True)
    assert filled.pool.resident.most() is None
    filled.spilled(chunks[0], None, chunks[0].size)
    assert filled.pool.resident.most() is filled
    assert filled.spillable(1, lambda _: True) == chunks[:1]


def test_what_is_known_of_many_that_grow_has_an_end() -> None:
    holds = dict.fromkeys(range(10), 0)
    ranking = Ranking(lambda number: holds[number])
    for step in range(10_000):
        holds[step % 10] += 1
        ranking.put(step % 10)
    assert len(ranking._heap) < 200
