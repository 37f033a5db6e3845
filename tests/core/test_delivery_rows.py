"""Deliveries that were sent together are a row: whatever is settled, in whatever order, it is as if each were noted."""

from __future__ import annotations

from random import Random

import pytest
from tests.core.stage import Stage

from headway.core.consumer import Channel, channel


def noted(of: Channel) -> list[tuple[int, int, bool]]:
    """Ids, numbers and states of the records in flight, in order. Nothing is taken out of its row for it."""
    found = [(delivery_id, one.number, one.released) for delivery_id, one in of._each.items()]
    for row in of._rows:
        released = row.released if row.alone is None else row.alone.released
        ids = [(row.first_id + at - 1) % of.id_max + 1 for at in range(row.count)]
        found += [(one, row.number + at, released) for at, one in enumerate(ids)]
    return found


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("seed", range(40))
def test_rows_are_what_single_deliveries_are(seed: int, qos: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = Random(seed)
    monkeypatch.setattr(channel, "IN_ROWS_MAX", chance.choice([8, 100, 8192]))
    stage = Stage(memory="64MB")
    client, publisher = stage.consumer("c", "t", qos, buffer=10**8), stage.client("p")
    of, cursor = client.session.channel, client.session.subscriptions["t"].cursor
    of.id_max, of.limit = chance.choice([(60, 50), (65_535, 700), (65_535, 60_000)])
    owed: dict[int, int] = {}
    released: set[int] = set()

    def hear(session: object, delivery_id: int, now: float) -> bool:
        assert delivery_id not in owed
        owed[delivery_id] = int(client.seen[-1].payload.split()[0])
        return True

    settle = stage.broker.acknowledge
    monkeypatch.setattr(stage.broker, "acknowledge", hear)
    published = 0
    for _ in range(120):
        if chance.random() < 0.5:
            count = chance.choice([1, 2, 5, 30, 300])
            size = chance.choice([10, 10, 2000, 2000, 300_000 // count])
            publisher.publish("t", published, count, size=size, qos=qos)
            published += count
        elif owed:
            alone = len(of._each)
            ids = list(owed)
            at = chance.randrange(len(ids))
            how = chance.choice(["first", "all", "some", "one", "backwards", "unknown", "looked at", "aside"])
            if how == "looked at":
                assert {one: delivery.number for one, delivery in of.in_flight.items()} == owed
                ids = []
            elif how == "aside":
                cursor.set_aside()
                ids = []
            elif how == "unknown":
                ids = [chance.randint(1, of.id_max) for _ in range(5)]
            elif how != "all":
                ids = {"first": ids[: at + 1], "some": ids[at : at + 20], "one": ids[at : at + 1],
                       "backwards": ids[at::-1]}[how]  # fmt: skip
            if qos == 2 and chance.random() < 0.5:
                assert stage.broker.on_pubrecs(client.session, ids)[0] == [one in owed for one in ids]
                released |= owed.keys() & set(ids)
                ids = []
            elif chance.random() < 0.5:
                stage.broker.acknowledge_all(client.session, ids)
            else:
                for one in ids:
                    settle(client.session, one, stage.now)
            for one in ids:
                owed.pop(one, None)
                released.discard(one)
            assert len(of._each) <= alone or how == "looked at", "whatever is settled takes no row apart"
        stage.turn()
        assert noted(of) == [(one, number, one in released) for one, number in owed.items()]
        assert of.used == cursor.owed_records == len(owed)
        assert all(map(cursor.owes, owed.values()))
    while owed:
        stage.broker.acknowledge_all(client.session, list(owed))
        owed.clear()
        stage.turn()
    assert not of.used
    assert not cursor.leaves
    assert client.numbers == list(range(published))


@pytest.mark.parametrize("qos", [1, 2])
def test_single_records_behind_rows_do_not_take_them_apart(qos: int) -> None:
    """A client whose acknowledgements free some places at a time is sent a few records at a time."""
    stage = Stage(memory="64MB")
    client, publisher = stage.consumer("c", "t", qos, acks=False, buffer=10**8), stage.client("p")
    of = client.session.channel
    for first, count in ((0, 50), (50, 1), (51, 3), (54, 1)):
        publisher.publish("t", first, count, qos=qos)
        stage.turn()
    assert sum(row.count for row in of._rows) == 55
    assert not of._each
