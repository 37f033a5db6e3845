"""Limits per user: what all clients of one user may take up together."""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest
from tests.core.stage import SHARED, STUCK, Client, Socket, Stage
from tests.core.test_tab import connect, disconnect

from headway.core.allowance import UNLIMITED, Allowance, Allowances, UserLimits
from headway.core.base.errors import Reason, Refused
from headway.core.clients.requests import SELECTORS_MAX
from headway.core.consumer.request import ConnectRequest, SubscribeRequest, SubscriptionOptions
from headway.core.permission import Identity
from headway.wire.mqtt.dialect import MqttDialect

SMALL = {"memory": "2MB", "disk": "0B", "free": "100KB"}


def given(stage: Stage, *limits: UserLimits, groups: dict[str, list[str]] | None = None) -> Allowances:
    allowances = stage.broker.registry.allowances
    allowances.take(limits, groups or {})
    return allowances


def of_user(stage: Stage, client: Client, user: str) -> Allowance:
    allowance = stage.broker.registry.allowances.of(Identity(user))
    assert allowance is not UNLIMITED
    client.session.charge(allowance)
    return allowance


# -- whose limit -------------------------------------------------------------------------------------------------------


def test_the_first_limit_that_is_for_a_user_is_its_limit() -> None:
    allowances = Allowances()
    assert not allowances.take((), {})
    assert allowances.of(Identity("ann")) is UNLIMITED
    assert allowances.take(
        [
            UserLimits("limit[1]", user="ann", connections=1), UserLimits("limit[2]", group="desks", connections=2),
            UserLimits("limit[3]", connections=3),
        ],
        {"desks": ["ann", "bob"]},
    )  # fmt: skip
    found = {name: allowances.of(Identity(name, groups)) for name, groups in
             (("ann", ()), ("bob", ()), ("carl", ()), ("dan", ("desks",)))}  # fmt: skip
    assert {name: one.limits.connections for name, one in found.items() if one} == {
        "ann": 1, "bob": 2, "carl": 3, "dan": 2
    }  # fmt: skip
    assert allowances.of(Identity("")) is UNLIMITED
    assert allowances.of(Identity("ann")) is found["ann"]
    assert allowances.take((), {})  # those who had limits have to be told


def test_users_who_are_gone_are_forgotten() -> None:
    allowances = Allowances()
    allowances.take([UserLimits("limit[1]", connections=1)], {})
    here = allowances.of(Identity("here"))
    assert here is not UNLIMITED
    here.connections = 1
    for number in range(10_000):
        allowances.of(Identity(f"u{number}"))
    assert len(allowances._known) < 2_500
    assert allowances.of(Identity("here")) is here


# -- connections and subscriptions -------------------------------------------------------------------------------------


def test_connections_of_a_user_are_limited_together_and_a_session_that_is_taken_over_gives_way() -> None:
    stage = Stage()
    ann = given(stage, UserLimits("limit[1]", connections=2)).of(Identity("ann"))
    first = connect(stage, "a", allowance=ann, clean_start=False, expiry_s=60.0)
    connect(stage, "b", allowance=ann)
    with pytest.raises(Refused, match=r"user ann has 2 connections, and limit\[1\]\.connections permits 2") as caught:
        connect(stage, "c", allowance=ann)
    assert caught.value.reason is Reason.USER_LIMIT
    assert stage.broker.registry.allowances.counts == {"connections": 1}
    assert connect(stage, "a", allowance=ann, clean_start=False, expiry_s=60.0) is first
    assert ann is not UNLIMITED
    assert ann.connections == 2
    connect(stage, "d")  # a client without limits
    disconnect(stage, first)
    assert ann.connections == 1  # its session stays, and is no connection
    connect(stage, "c", allowance=ann)
    with pytest.raises(Refused):
        connect(stage, "a", allowance=ann, clean_start=False, expiry_s=60.0)


def test_subscriptions_count_until_they_end_whichever_way() -> None:
    stage = Stage()
    given(stage, UserLimits("limit[1]", subscriptions=3))
    one, two = stage.client("one", expiry_s=60.0), stage.client("two")
    one.subscribe("t/0")
    ann = of_user(stage, one, "ann")
    of_user(stage, two, "ann")
    assert ann.subscriptions == 1
    two.subscribe("t/1")
    two.subscribe("t/2")
    two.subscribe("t/2", 1)  # another in its place
    for client in (one, two):
        with pytest.raises(Refused, match=r"user ann has 3 subscriptions, and limit\[1\]\.subscriptions permits 3"):
            client.subscribe("t/3")
    stage.broker.unsubscribe(two.session, "t/1", stage.now)
    one.subscribe("t/3")
    assert ann.subscriptions == 3
    two.leave()
    assert ann.subscriptions == 2  # at once, although it is cleared up over the turns to come
    stage.turn()
    assert ann.subscriptions == 2
    one.leave()
    assert (ann.subscriptions, ann.connections) == (2, 0)  # its session stays
    assert not ann.unused
    stage.broker.registry.timers.run(stage.now + 61)
    stage.turn()
    assert (ann.subscriptions, ann.connections) == (0, 0)


@pytest.mark.parametrize("seed", range(8))
def test_counts_are_those_of_the_sessions_there_are_whatever_clients_do(seed: int) -> None:
    """They come, come back, take over, take another's name, are kicked, expire, and limits change meanwhile."""
    rng, stage, clients = Random(seed), Stage(), [f"c{number}" for number in range(5)]
    broker, registry, now = stage.broker, stage.broker.registry, stage.now
    allowances = given(stage, UserLimits("limit[1]", connections=3, subscriptions=6))
    known: dict[str, Allowance] = {}

    def of(user: str) -> Allowance:
        found = allowances.of(Identity(user))
        if found is not UNLIMITED:
            known[user] = found
        return found

    def act() -> None:
        session = registry.sessions.get(rng.choice(clients))
        match rng.randrange(8):
            case 0 | 1 | 2:
                user = rng.choice(["ann", "bob", ""])
                request = ConnectRequest(
                    rng.choice(clients), "", clean_start=rng.random() < 0.3, expiry_s=rng.choice([0.0, 5.0, 60.0]),
                    username=user or None, allowance=of(user),
                )  # fmt: skip
                broker.connect(request, Socket(now, 2000, rng, 0.0, lambda _: None), now)
            case 3 | 4 if session is not None and session.connected:
                dialect = MqttDialect(5, 0, None, False, False)
                broker.subscribe(session, SubscribeRequest(f"t/{rng.randrange(4)}", dialect, SHARED), now)
            case 5 if session is not None:
                broker.unsubscribe(session, f"t/{rng.randrange(4)}", now)
            case 6 if session is not None and session.connected:
                if rng.random() < 0.5:
                    broker.expel(session, Reason.TAKEN_OVER, "kicked", now)
                else:
                    broker.disconnect(session, session.outlet, Reason.CLIENT_GONE, now)
            case 7:
                limits = rng.choice([(UserLimits("limit[1]", connections=3, subscriptions=6),), ()])
                if allowances.take(limits, {}):
                    broker.set_allowances(lambda one: of(one.username or ""), now)

    for _ in range(400):
        now += rng.choice([0.0, 0.1, 7.0])
        with suppress(Refused):
            act()
        registry.timers.run(now)
        while broker.has_work:
            broker.flush(now)
        broker.take_effects()
        there = list(registry.sessions.values())
        for allowance in known.values():
            own = [session for session in there if session.allowance is allowance]
            assert allowance.connections == sum(session.connected for session in own)
            assert allowance.subscriptions == sum(len(session.subscriptions) for session in own)
            assert allowance.gating_bytes == 0


# -- publishing --------------------------------------------------------------------------------------------------------


def test_who_publishes_more_than_its_user_may_waits_until_it_is_paid_for() -> None:
    stage = Stage()
    given(stage, UserLimits("limit[1]", publish_rate=100))
    reader, fast = stage.consumer("reader", "t"), stage.client("fast")
    of_user(stage, fast, "ann")
    sent = 0
    for _ in stage.steps(10.0):
        sent += 20 * fast.publish("t", sent, 20)
    assert 100 * 10 <= sent <= 100 * 10 + 100 + 20  # one second may have been saved, and one read goes beyond
    assert len(reader.seen) == sent
    assert stage.broker.registry.allowances.counts["publish_rate"] > 10
    assert not stage.told("fast_producer")  # nobody is slow because of it


def test_another_connection_of_that_user_waits_too_and_others_do_not() -> None:
    stage = Stage()
    given(stage, UserLimits("limit[1]", user="ann", publish_bytes=10_000))
    fast, other, free = (stage.client(name) for name in ("fast", "other", "free"))
    ann = of_user(stage, fast, "ann")
    fast.publish("t", 0, 300)  # 30 kB: three seconds, of which one was saved
    stage.turn()
    assert fast.paused
    assert list(fast.session.paused_by) == [ann]
    of_user(stage, other, "ann")
    other.publish("t", 0)
    stage.turn()
    assert other.paused
    again = stage.broker.connect(fast.request, fast.outlet, stage.now)
    assert again is not None
    free.publish("t", 0, 1000)
    stage.turn()
    assert not free.paused
    stage.run(3.2)
    assert not other.paused


def test_who_comes_back_does_not_get_more() -> None:
    stage = Stage()
    given(stage, UserLimits("limit[1]", publish_rate=10))
    fast = stage.client("fast")
    ann = of_user(stage, fast, "ann")
    fast.publish("t", 0, 100)
    fast.leave()
    session = connect(stage, "fast", allowance=ann)
    assert list(session.paused_by) == [ann]
    assert ann.wait_reason == "user ann may publish 10 records a second (limit[1])"


def test_a_reload_takes_limits_away_and_gives_others() -> None:
    stage = Stage()
    given(stage, UserLimits("limit[1]", publish_rate=10))
    client = stage.client("fast")
    of_user(stage, client, "ann")
    client.subscribe("x")
    client.publish("t", 0, 1000)
    given(stage)
    stage.broker.set_allowances(lambda _: stage.broker.registry.allowances.of(Identity("ann")), stage.now)
    assert client.session.allowance is UNLIMITED
    stage.turn()
    assert not client.paused
    allowances = given(stage, UserLimits("limit[1]", subscriptions=1))
    ann = allowances.of(Identity("ann"))
    stage.broker.set_allowances(lambda session: ann if session is client.session else UNLIMITED, stage.now)
    assert ann is client.session.allowance
    assert ann is not UNLIMITED
    assert (ann.connections, ann.subscriptions) == (1, 1)
    with pytest.raises(Refused):
        client.subscribe("y")


# -- the share of the pool ---------------------------------------------------------------------------------------------


def test_clients_that_hold_more_than_their_users_share_together_are_evicted() -> None:
    stage = Stage(**SMALL)
    given(stage, UserLimits("limit[1]", user="ann", pool_share=0.2))
    stuck = [stage.consumer(f"s{number}", f"t/{number}", reads=STUCK) for number in range(3)]
    free = stage.consumer("free", "t/9", reads=STUCK)
    for client in stuck:
        of_user(stage, client, "ann")
    publisher = stage.client("publisher")
    for number in (0, 1, 2, 9):
        publisher.publish(f"t/{number}", 0, 180, size=1000)
    stage.run(12.0)
    assert any(not client.connected for client in stuck)
    assert free.connected
    gone = next(client for client in stuck if not client.connected)
    assert gone.goodbye is not None
    assert "the clients of user ann hold more of the pool than limit[1] permits" in gone.goodbye.reason
    assert stage.broker.registry.allowances.counts["pool_share"] >= 1
    assert sum(client.connected for client in stuck) >= 1  # no more than it takes


def selecting(selector: str | None, name: object, filter: str = "t") -> SubscribeRequest:
    return SubscribeRequest(filter, MqttDialect(5), name=name, options=SubscriptionOptions(selector=selector))


def test_a_client_has_only_so_many_selectors_for_one_filter() -> None:
    stage = Stage()
    client = connect(stage, "a")
    for number in range(SELECTORS_MAX):
        stage.broker.subscribe(client, selecting(f"a = {number}", number), stage.now)
    with pytest.raises(Refused, match="256 subscriptions with selectors to one filter"):
        stage.broker.subscribe(client, selecting("b = 1", "b"), stage.now)
    stage.broker.subscribe(client, selecting("b = 1", "other", "u"), stage.now)
    stage.broker.subscribe(client, selecting(None, "plain"), stage.now)
