"""The name of a client whose connection is called like those of others."""

from __future__ import annotations

from random import Random

import pytest

from headway.server.peers.login_side import free_name


class Asked(set[str]):
    """Names that are taken, which count how often somebody asks for one."""

    asked = 0

    def __contains__(self, name: object) -> bool:
        self.asked += 1
        return super().__contains__(name)


def test_very_many_who_have_one_name_get_numbers_in_order_after_a_few_questions() -> None:
    taken = Asked()
    names = []
    for _ in range(3000):
        taken.asked = 0
        names.append(free_name("worker", taken))
        assert taken.asked <= 30
        taken.add(names[-1])
    assert names == ["worker", *(f"worker#{number}" for number in range(2, 3001))]


@pytest.mark.parametrize("seed", range(10))
def test_a_name_is_free_whoever_has_left(seed: int) -> None:
    chance = Random(seed)
    taken = Asked()
    for _ in range(500):
        name = free_name("worker", taken)
        assert name not in taken
        taken.add(name)
        if chance.random() < 0.4:
            taken.remove(chance.choice(sorted(taken)))
