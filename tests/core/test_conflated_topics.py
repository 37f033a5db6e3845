"""``[[topic]] conflate``: whom it conflates, whom it does not, and what a reload changes for those who are there."""

from __future__ import annotations

import tomllib

import pytest
from tests.core.stage import STUCK, Client, Stage, terms_of

from headway.core.clients.subscriptions import Starts

QUOTES = """
[[topic]]
filter = "quotes/#"
key = "property:key"
conflate = "10s"
"""
PLAIN = QUOTES.replace('conflate = "10s"', "")
TWO = """
[[topic]]
filter = "quotes/fx/#"
key = "property:key"

[[topic]]
filter = "quotes/#"
key = "property:key"
conflate = "10s"
"""
CONFLATES = """
[[policy]]
name = "p"
topics = ["#"]

[[policy.rule]]
when = { lag_records = 3 }
then = "conflate"
"""
BY_TOPIC = "[[topic]] quotes/#, every 10 s"


def reload(stage: Stage, toml: str) -> None:
    stage.broker.declare_states([terms_of(topic) for topic in tomllib.loads(toml).get("topic", [])], stage.now)
    while stage.broker.has_work:
        stage.turn()


def ticks(stage: Stage, publisher: Client, first: int, topic: str = "quotes/a") -> None:
    """Five records of two keys, within a second; then nothing, for longer than the interval."""
    for number in range(first, first + 5):
        publisher.publish(topic, number, key="ab"[number % 2])
        stage.turn()
    stage.run(12)


def conflated(stage: Stage, client: Client, first: int = 0, topic: str = "quotes/a") -> bool:
    """Whether it gets the latest two of five, or all five."""
    client.seen.clear()
    publisher = stage.clients.get("p") or stage.client("p")
    ticks(stage, publisher, first, topic)
    assert client.numbers in ([first + 3, first + 4], list(range(first, first + 5))), client.numbers
    return len(client.numbers) == 2


# -- whom it conflates -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("filter", ["quotes/a", "quotes/#", "quotes/+"])
def test_who_says_nothing_gets_the_latest_of_each_key(filter: str, version: int) -> None:
    stage = Stage(QUOTES)
    client = stage.consumer("c", filter, version=version)
    assert conflated(stage, client)
    told = stage.stats(client)
    assert (told.state, told.conflated_by) == ("conflating", BY_TOPIC)
    if version == 5:
        assert told.gap_records == {"conflated": 3}


def test_what_the_subscriber_says_wins() -> None:
    stage = Stage(QUOTES)
    every, own = (stage.consumer(name, "quotes/#", options={"conflate": how}) for name, how in
                  (("every", "off"), ("own", "2s")))  # fmt: skip
    assert not conflated(stage, every)
    assert stage.stats(every).conflated_by == ""
    assert conflated(stage, own, 5)
    assert stage.stats(own).conflated_by == "its own wish, every 2 s"


@pytest.mark.parametrize("filter", ["#", "+/a"])
def test_a_filter_that_goes_beyond_the_topic_is_not_conflated(filter: str) -> None:
    stage = Stage(QUOTES)
    assert not conflated(stage, stage.consumer("c", filter))


def test_the_first_topic_that_covers_the_filter_decides() -> None:
    stage = Stage(TWO)
    narrow, wide = stage.consumer("narrow", "quotes/fx/a"), stage.consumer("wide", "quotes/#")
    assert not conflated(stage, narrow, topic="quotes/fx/a")
    assert conflated(stage, wide, 5, topic="quotes/fx/a")


def test_who_was_promised_each_record_gets_it() -> None:
    """Durable subscriptions and groups."""
    stage = Stage(QUOTES)
    durable = stage.consumer("durable", "quotes/#", 1, expiry_s=60.0)
    member = stage.consumer("member", "$share/g/quotes/#")
    assert not conflated(stage, durable)
    assert not conflated(stage, member, 5)
    assert stage.stats(durable).conflated_by == stage.stats(member).conflated_by == ""


def test_a_durable_session_that_comes_back_to_end_with_its_connection_is_conflated() -> None:
    stage = Stage(QUOTES)
    durable = stage.consumer("c", "quotes/#", expiry_s=60.0)
    assert not conflated(stage, durable)
    durable.leave()
    back = stage.client("c")
    stage.turn()
    assert back.session is durable.session
    assert conflated(stage, back, 5)


def test_a_snapshot_comes_first_and_older_records_come_with_from() -> None:
    stage = Stage(QUOTES)
    publisher = stage.client("p")
    publisher.publish("quotes/a", 0, key="a")
    stage.turn()
    client = stage.consumer("c", "quotes/#", options={"snapshot": "true"})
    stage.turn()
    assert client.numbers == [0]
    late = stage.consumer("late", "quotes/#", options={"from_": "0"})
    stage.turn()
    assert late.numbers == [0]
    assert conflated(stage, client, 1)
    assert conflated(stage, late, 6)


def test_a_policy_does_not_end_it() -> None:
    """A rule that conflates, and steps back, leaves who is conflated by the topic as it is."""
    stage = Stage(QUOTES + CONFLATES)
    client, publisher = stage.consumer("c", "quotes/#", reads=STUCK, buffer=100), stage.client("p")
    for number in range(50):
        publisher.publish("quotes/a", number, key="a")
        stage.run(1)
    client.reads = float("inf")
    stage.run(30)
    assert not stage.stats(client).slow
    assert conflated(stage, client, 50)


# -- reload ------------------------------------------------------------------------------------------------------------


def test_a_reload_changes_it_for_who_is_there() -> None:
    stage = Stage(PLAIN)
    client = stage.consumer("c", "quotes/#")
    assert not conflated(stage, client)
    reload(stage, QUOTES)
    assert conflated(stage, client, 5)
    reload(stage, QUOTES.replace("10s", "5s"))
    assert stage.stats(client).conflated_by == "[[topic]] quotes/#, every 5 s"
    assert conflated(stage, client, 10)
    reload(stage, QUOTES.replace("10s", "0s"))
    assert stage.stats(client).conflated_by == "[[topic]] quotes/#"
    assert not conflated(stage, client, 15), "its socket has room each time"
    reload(stage, PLAIN)
    assert not conflated(stage, client, 20)
    reload(stage, QUOTES)
    assert conflated(stage, client, 25)
    reload(stage, '[[topic]]\nfilter = "other"\nconflate = "1s"\n')
    assert not conflated(stage, client, 30), "the [[topic]] is gone"


def test_nothing_is_lost_where_a_reload_ends_it() -> None:
    stage = Stage(QUOTES)
    client, publisher = stage.consumer("c", "quotes/#"), stage.client("p")
    publisher.publish("quotes/a", 0, key="a")
    publisher.publish("quotes/a", 1, key="a")
    stage.turn()
    assert client.numbers == []
    reload(stage, PLAIN)
    publisher.publish("quotes/a", 2, key="a")
    stage.turn()
    assert client.numbers == [1, 2], "the last pass comes at once, then every record"
    stage.run(30)
    assert client.numbers == [1, 2]


def test_who_lags_is_conflated_by_a_reload() -> None:
    stage = Stage(PLAIN)
    client, publisher = stage.consumer("c", "quotes/#", reads=STUCK, buffer=300), stage.client("p")
    for number in range(40):
        publisher.publish("quotes/a", number, key="a")
        stage.turn()
    reload(stage, QUOTES)
    client.reads = float("inf")
    stage.run(30)
    assert client.numbers[-1] == 39
    assert len(client.numbers) < 10, "a few were on their way"
    assert conflated(stage, client, 40)


def test_what_waited_before_the_topic_was_there_is_not_left_out_for_it() -> None:
    """Its state knows none of these records, and 38 of them were left out for nothing newer."""
    stage = Stage()
    client, publisher = stage.consumer("c", "quotes/#", reads=STUCK, buffer=300), stage.client("p")
    for number in range(40):
        publisher.publish("quotes/a", number, key="ab"[number >= 20])
        stage.turn()
    reload(stage, QUOTES)
    publisher.publish("quotes/a", 40, key="c")
    stage.run(30)
    client.reads = float("inf")
    stage.run(30)
    assert client.numbers == list(range(41))
    assert conflated(stage, client, 50)


def test_very_many_that_stand_still_are_not_asked_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand of them took an eighth of a core, each with a whole try a second."""
    tries: list[object] = []
    waits = Starts._wait_anew
    monkeypatch.setattr(Starts, "_wait_anew", lambda self, one, now: (tries.append(one), waits(self, one, now)))
    stage = Stage()
    stage.consumer("c", "quotes/#", reads=STUCK, buffer=300)
    publisher = stage.client("p")
    for number in range(40):
        publisher.publish("quotes/a", number, key="a")
        stage.turn()
    reload(stage, QUOTES)
    stage.run(30)
    assert len(tries) == 1


def test_a_policy_that_conflates_goes_on_where_a_reload_ends_it() -> None:
    stage = Stage(PLAIN + CONFLATES)
    client, publisher = stage.consumer("c", "quotes/#", reads=STUCK, buffer=300), stage.client("p")
    for number in range(40):
        publisher.publish("quotes/a", number, key="a")
        stage.run(1)
    assert stage.stats(client).conflated_by == "policy 'p'"
    reload(stage, QUOTES)
    assert stage.stats(client).conflated_by == BY_TOPIC
    reload(stage, PLAIN)
    assert stage.stats(client).conflated_by == "policy 'p'"
    client.reads = float("inf")
    stage.run(60)
    assert not conflated(stage, client, 40)


def test_a_topic_that_comes_by_reload_conflates_by_its_own_key() -> None:
    """The subscriber read the state of another key before: the latest record per topic would lose a key."""
    stage = Stage()
    client = stage.consumer("c", "quotes/#", options={"snapshot": "true"})
    assert not conflated(stage, client)
    reload(stage, QUOTES)
    stage.run(3)
    assert conflated(stage, client, 5)
    own = [state for state in stage.broker.registry.router.states if not state.declared]
    assert own == [], "nobody reads the other state any more"


def test_a_snapshot_that_is_being_read_is_read_to_its_end_first() -> None:
    stage = Stage()
    stage.consumer("first", "quotes/#", options={"snapshot": "true"})
    publisher = stage.client("p")
    for number in range(100):
        publisher.publish(f"quotes/{number}", number, key=str(number))
    stage.turn()
    client = stage.consumer("c", "quotes/#", reads=1000, buffer=500, options={"snapshot": "true"})
    reload(stage, QUOTES)
    stage.run(5)
    assert 0 < len(client.numbers) < 100
    stage.run(60)
    assert client.numbers == list(range(100))
    assert conflated(stage, client, 200)


def test_a_topic_that_comes_in_front_of_another_decides_from_then_on() -> None:
    stage = Stage(QUOTES)
    client = stage.consumer("c", "quotes/fx/a")
    assert conflated(stage, client, topic="quotes/fx/a")
    reload(stage, TWO)
    assert not conflated(stage, client, 5, topic="quotes/fx/a")


def test_another_key_conflates_by_that() -> None:
    stage = Stage(QUOTES.replace("property:key", "topic"))
    client, publisher = stage.consumer("c", "quotes/#"), stage.client("p")
    ticks(stage, publisher, 0)
    assert client.numbers == [4]
    reload(stage, QUOTES)
    stage.run(3)
    assert conflated(stage, client, 5)



def test_a_reload_gives_members_of_groups_no_state() -> None:
    """A policy that conflates would else take the records of a queue from its members."""
    stage = Stage(CONFLATES)
    member, publisher = stage.consumer("member", "$share/g/quotes/#", reads=STUCK, buffer=100), stage.client("p")
    reload(stage, QUOTES)
    for number in range(40):
        publisher.publish("quotes/a", number, key="a")
        stage.run(1)
    assert stage.stats(member).conflated_by == ""
    member.reads = float("inf")
    stage.run(30)
    assert member.numbers == list(range(40))
