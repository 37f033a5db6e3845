"""The rows of XAP over topics, one story each (docs/five-systems/XAP.md)."""

from __future__ import annotations

import pytest
from tests.core.rows import KB, MB, assert_told_why
from tests.core.stage import STUCK, Client, Stage, documented

from headway.server.config import preset_text
from headway.server.progress.peer_progress import PeerProgress

# -- XAP ------------------------------------------------------------------------------------------------------------


def test_x1_a_rate_below_the_floor_while_records_wait_makes_a_suspect() -> None:
    stage = Stage(documented("X1"))
    publisher, trickle = stage.client("publisher"), stage.client("little to say")
    stage.consumer("slow", "t", reads=4000)
    stage.consumer("fast enough", "t", reads=6500)
    stage.consumer("idle", "nothing")
    stage.consumer("little to read", "rare")
    for number, _ in enumerate(stage.steps(8)):
        publisher.publish("t", number, size=900)  # 9 kB/s
        if number % 10 == 0:
            trickle.publish("rare", number)  # 100 B/s, all of it taken
    assert {one["client"] for one in stage.told("slow")} == {"slow"}
    verdict = stage.told("slow")[0]
    assert verdict["reason"] == "drain_rate"
    assert "at least 5 kB/s asked" in verdict["text"]


def test_x2_three_tests_within_the_latency_and_one_passed_test_clears() -> None:
    stage = Stage(documented("X2"))
    publisher = stage.client("publisher")
    stuck = stage.consumer("stuck", "t", reads=STUCK)
    hiccup = stage.consumer("hiccup", "t", reads=STUCK)
    stage.run(0.1)
    publisher.publish("t", 0, 50, size=1000)
    went = None
    for now in stage.steps(9):
        since = round(now - 1000.1, 1)
        # Two tests find it slow; before the third it reads what there is. And so again and again.
        hiccup.reads = STUCK if since % 1.8 < 0.95 else 1 * MB
        publisher.publish("t", round(since * 1000), 10, size=1000)
        if went is None and not stuck.connected:
            went = since
    assert went is not None
    # A quarter of a second of measuring, then three tests; each at a sweep, five of which make a second.
    assert 0.25 + 3 * 0.2 < went <= 0.25 + 3 * 0.2 + 3 * 0.2
    assert_told_why(stuck, "each of 3 tests", "at least 5 kB/s asked")
    assert hiccup.connected


def halting(toml: str, rests_s: float, period_s: float, *, seconds: float = 60, reads: float = 1 * MB) -> Client:
    """A client on the broker's host that stands still for so long of each period, at first for 0.9 s only, and else
    reads all that there is. The kernel tells the broker of each pause."""
    stage = Stage(toml)
    publisher = stage.client("publisher")
    client = stage.consumer("halting", "t", reads=reads)
    client.outlet.progress = PeerProgress()
    for number, now in enumerate(stage.steps(seconds)):
        stands = (now - 1000) % period_s < (rests_s if now >= 1000 + 2 * period_s else 0.9)
        client.reads, client.allowance = (STUCK, 0) if stands else (reads, client.allowance)
        publisher.publish("t", number, size=2000)  # 20 kB/s, so the socket is full after 0.1 s
    return client


@pytest.mark.parametrize(("rests_s", "period_s"), [(2.5, 4), (1.6, 2), (1.6, 20)])
def test_x2_who_stands_still_for_longer_than_the_latency_goes_also_if_it_always_does(
    rests_s: float, period_s: float
) -> None:
    toml = preset_text("xap").replace('"500ms"', '"1s"')
    cut = halting(toml, rests_s, period_s)
    assert_told_why(cut, "nothing taken", "at least 5 kB/s asked", "each of 3 tests", "1 s")
    excused = halting(toml.replace("excuse_pauses = false", "excuse_pauses = true"), rests_s, period_s)
    assert excused.connected, "Headway's own meter has seen that it reads again each time"


def test_x2_who_reads_within_the_latency_stays_however_often_it_stands_still() -> None:
    toml = preset_text("xap").replace('"500ms"', '"1s"')
    assert halting(toml, 0.9, 1.5).connected, "a test in between finds that it reads"
    assert_told_why(halting(toml, 0.9, 1.5, reads=4 * KB), "each of 3 tests"), "but not if it reads too little"


def test_x2_the_tests_are_within_the_latency() -> None:
    """A quarter of a second without a byte makes a suspect; then there are three tests in half a second."""
    stage = Stage(preset_text("xap"))
    publisher = stage.client("publisher")
    client = stage.consumer("stuck", "t", reads=STUCK)
    publisher.publish("t", 0, 50, size=1000)
    stage.run(0.7)
    assert client.connected
    stage.run(0.2)
    assert_told_why(client, "each of 3 tests", "500 ms")


def test_x3_a_client_whose_bounded_queue_is_full_stops_reading_and_is_found() -> None:
    stage = Stage(documented("X3"))
    publisher = stage.client("publisher")
    full = stage.consumer("queue full", "t", queue=20, options={"lease": "1h"})
    works = stage.consumer("queue worked off", "t", queue=20)
    works.handles = 100
    window = stage.consumer("window full", "t", 1, window=20, acks=False)
    for number, _ in enumerate(stage.steps(5)):
        publisher.publish("t", number, size=600, qos=1)  # 6 kB/s
    assert len(full.seen) == 20, "it takes no more than its queue holds"
    assert len(window.seen) == 20
    ended = {one["client"]: one["text"] for one in stage.told("deleted")}
    assert set(ended) == {"queue full", "window full"}
    assert "20 records unacknowledged" in ended["window full"]
    assert full.connected, "only its registration is cancelled"
    assert_told_why(window)  # without a lease (X4) it would not learn that
    assert works.numbers == list(range(50)), "and whoever works off what it gets misses nothing"


def test_x4_cancelled_then_learnt_through_the_lease_then_a_snapshot() -> None:
    stage = Stage(documented("X4"))
    publisher = stage.client("publisher")
    slow = stage.client("slow")
    stage.client("other")
    options = {"lease": "10s", "snapshot": "true"}
    first = slow.subscribe("prices/#", **options)
    stage.run(2)
    renewed = slow.subscribe("prices/#", **options)
    assert renewed is first
    assert renewed.renewals == 1, "SUBACK says renewed=true"
    slow.reads = STUCK
    for number, _ in enumerate(stage.steps(3)):
        publisher.publish("prices/a", number, size=1500, key=f"key {number % 3}")
    assert slow.connected, "the registration is cancelled, not the connection"
    assert stage.stats_of("slow") == []
    assert stage.told("deleted", "slow")[0]["filter"] == "prices/#"
    slow.reads = float("inf")
    stage.run(1)
    slow.seen.clear()  # it clears its image
    again = slow.subscribe("prices/#", **options)
    assert again.renewals == 0, "SUBACK says renewed=false: the client learns that it was cancelled"
    stage.turn()
    assert slow.payloads == [p.ljust(1500, ".") for p in ("27 key 0", "28 key 1", "29 key 2")], "the state, once"
    publisher.publish("prices/a", 30, key="key 0")
    stage.turn()
    assert slow.numbers == [27, 28, 29, 30], "then what comes"
    stage.run(10)
    assert stage.stats_of("slow") == [], "whoever does not renew is not subscribed for ever"


def test_x6_fast_consumers_notice_nothing_and_memory_stays_within_its_limit() -> None:
    stage = Stage(documented("X6"), memory="1MB", disk="2MB")
    publisher = stage.client("publisher")
    fast = stage.consumer("fast", "t")
    stuck = [stage.consumer(f"stuck {n}", "t", reads=STUCK) for n in range(20)]
    for number, _ in enumerate(stage.steps(60)):
        assert publisher.publish("t", number * 20, 20, size=1000)
        stage.turn()
        assert len(fast.seen) == (number + 1) * 20, "everything, in the turn it came"
    assert fast.numbers == list(range(600 * 20))
    assert fast.gap_told == {}
    assert stage.pool.memory_peak_bytes <= 1 * MB + 20 * KB * 1.1
    assert stage.pool.disk_peak_bytes <= 2 * MB + 64 * KB
    for one in stuck:
        assert_told_why(one)
