"""Permissions by themselves: which filters apply to whom, what they cover, and how long an answer is remembered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.base.errors import Reason, Refused
from headway.core.log.lanes.pool import RIGHTS, Pool, Tab
from headway.core.message.topics import matches
from headway.core.permission import (
    ANSWERS_MAX,
    Denial,
    Denials,
    Identity,
    Operation,
    Permission,
    Permissions,
    Rights,
    fill,
)

GROUPS = {"desks": ["alice", "bob"]}
RULES = (
    Permission(subscribe=("public/#", "of/%u", "at/%c/+")),
    Permission(group="desks", publish=("orders/%u/#",), subscribe=("prices/+",)),
    Permission(user="ops", publish=("#",), subscribe=("#", "$SYS/#"), admin=("change",)),
    Permission(user="amqp", publish=("$exchange/x/#", "$queue/jobs/#"), declare=("$queue/%u/#",)),
)


def rights(user: str, client: str = "c", rules: tuple[Permission, ...] = RULES, denials: Denials | None = None
           ) -> Rights:
    return Permissions(rules, GROUPS, denials).rights(Identity(user), client)


@pytest.mark.parametrize(
    ("user", "topic", "allowed"),
    [
        ("alice", "orders/alice/1", True), ("alice", "orders/alice", True), ("alice", "orders/bob/1", False),
        ("bob", "orders/bob/1", True), ("carol", "orders/carol/1", False), ("", "orders//1", False),
        ("ops", "anything", True), ("ops", "$SYS/x", False), ("ops", "$queue/x", False), ("ops", "", True),
        ("alice", "$headway/renew", True), ("alice", "$headway/other", False),
        ("amqp", "$exchange/x/a/b", True), ("amqp", "$exchange/x", True), ("amqp", "$exchange/xy/a", False),
        ("amqp", "$exchange/x.y/a", False), ("amqp", "$queue/jobs", True), ("amqp", "$queue/jobs.eu", True),
        ("amqp", "$queue/jobs/eu", True), ("amqp", "$queue/jobseu", False), ("amqp", "x", False),
    ],
)  # fmt: skip
def test_publishing(user: str, topic: str, allowed: bool) -> None:
    assert rights(user).may_publish(topic) is allowed


@pytest.mark.parametrize(
    ("user", "filter", "allowed"),
    [
        ("", "public/#", True), ("", "public/a/+", True), ("", "#", False), ("", "of/", False), ("", "prices/a", False),
        ("alice", "of/alice", True), ("alice", "of/bob", False), ("alice", "of/+", False), ("alice", "at/c/x", True),
        ("alice", "at/d/x", False), ("alice", "at/+/x", False), ("alice", "prices/+", True),
        ("alice", "prices/#", False), ("alice", "+/a", False), ("ops", "#", True), ("ops", "$SYS/#", True),
        ("ops", "$queue/x", False),
    ],
)  # fmt: skip
def test_subscribing(user: str, filter: str, allowed: bool) -> None:
    assert rights(user).may(Operation.SUBSCRIBE, filter) is allowed


@pytest.mark.parametrize("name", ["", "+", "#", "a/b", "a+", "$SYS", "a\0"])
def test_a_name_that_is_more_than_a_part_of_a_level_widens_nothing(name: str) -> None:
    assert fill("a/%u", "%u", name) is None
    assert fill("a/b", "%u", name) == "a/b"


def test_in_names_of_queues_a_dot_parts_words_too() -> None:
    assert fill("$queue/%u/#", "%u", "alice.b") is None
    assert fill("a/%c", "%u", "x") == "a/%c"
    for name, filter in (("%c", "a/%u"), ("x%cy", "a/%u/%c"), ("c", "a/%%u"), ("x%", "a/%uc")):
        assert fill(filter, "%u", name) is None, "the client id would stand in the place of the name"
    assert fill("orders/%u/#", "%u", "alice.b") == "orders/alice.b/#"


@pytest.mark.parametrize(
    ("user", "client", "connect", "allowed"),
    [
        ("alice", "any", (), True), ("alice", "$x", ("#",), True), ("alice", "alice", ("%u",), True),
        ("alice", "bob", ("%u",), False), ("alice", "alice/1", ("%u/+",), True), ("alice", "x", ("%c",), True),
    ],
)  # fmt: skip
def test_client_ids(user: str, client: str, connect: tuple[str, ...], allowed: bool) -> None:
    rules = (Permission(user="alice", publish=("x",), connect=connect),)
    asked = rights(user, client, rules)
    if allowed:
        asked.check_connect()
        return
    with pytest.raises(Refused) as refused:
        asked.check_connect()
    assert refused.value.reason is Reason.NOT_AUTHORIZED


def test_who_has_no_permission_may_not_connect() -> None:
    rules = (Permission(user="alice", publish=("x",)), Permission(group="desks", subscribe=("y",)))
    for user, applies in (("alice", True), ("bob", True), ("carol", False), ("", False)):
        assert rights(user, rules=rules).applies is applies, user


def test_admin() -> None:
    rules = Permissions((*RULES, Permission(user="reader", admin=("read",))), GROUPS)
    assert rules.admin(Identity("ops"), "read")
    assert rules.admin(Identity("ops"), "change")
    assert rules.admin(Identity("reader"), "read")
    assert not rules.admin(Identity("reader"), "change")
    assert not rules.admin(Identity("alice"), "read")
    assert not rules.admin(Identity(""), "read")


def test_users_that_are_gone_have_nothing_of_their_name_s() -> None:
    rules = Permissions(RULES, GROUPS)
    assert rules.rights(Identity("alice"), "c").may_publish("orders/alice/1")
    rules.forget_users(["alice"])
    gone = rules.rights(Identity("alice"), "c")
    assert not gone.applies
    assert not gone.may_publish("orders/alice/1")
    assert not gone.may(Operation.SUBSCRIBE, "public/a")
    assert rules.rights(Identity("bob"), "c").may_publish("orders/bob/1")


def test_a_user_whose_certificate_has_the_name_of_one_that_is_gone_stays() -> None:
    rules = Permissions(RULES, GROUPS)
    rules.forget_users(["alice", "ops"])
    stays = rules.rights(Identity("alice", elsewhere=True), "c")
    assert stays.applies
    assert stays.identity.elsewhere
    assert stays.may_publish("orders/alice/1")
    assert not rules.rights(Identity("alice"), "c").applies, "and a password still does not bring it back"
    assert [rules.admin(Identity("ops", elsewhere=elsewhere), "read") for elsewhere in (True, False)] == [True, False]


# -- answers -----------------------------------------------------------------------------------------------------------


def test_denials_are_told_once_and_counted_each_time() -> None:
    told: list[Denial] = []
    denials = Denials(told.append)
    asked = rights("alice", denials=denials)
    for _ in range(3):
        assert not asked.may_publish("x", 10)
        assert not asked.may(Operation.SUBSCRIBE, "#")
    assert not asked.may_publish("y")
    assert denials.counts == {Operation.PUBLISH: 31, Operation.SUBSCRIBE: 3}
    assert [(one.operation, one.name, one.first) for one in told] == [
        (Operation.PUBLISH, "x", True), (Operation.SUBSCRIBE, "#", True), (Operation.PUBLISH, "y", False),
    ]  # fmt: skip


def test_a_partly_allowed_subscription_is_told_of_the_part() -> None:
    text = rights("alice").text(Operation.SUBSCRIBE, "prices/#")
    assert text == "alice may not subscribe to 'prices/#', only to a part of it: prices/+"
    assert rights("").text(Operation.PUBLISH, "x") == (
        "a client without a user name may not publish to 'x': no [[permission]] allows it"
    )


def test_answers_are_bounded_counted_to_the_client_and_forgotten() -> None:
    tab = Tab(Pool("p", 1 << 30, 0, 1.0))
    asked = rights("ops")
    asked.count_on(tab)
    most = 0
    for number in range(3 * ANSWERS_MAX):
        assert asked.may_publish(f"topic/{number}")
        asked.may(Operation.DECLARE, f"$queue/{number}")
        most = max(most, tab.amounts[RIGHTS])
        assert len(asked._publish) + len(asked._answers) <= ANSWERS_MAX
    assert 100_000 < most <= 140_000
    asked.may_publish("t" * 60_000)
    assert tab.amounts[RIGHTS] <= 200_000
    asked.forget()
    assert RIGHTS not in tab.amounts
    assert asked.size == 0


def test_an_answer_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, found = rights("ops"), []
    allows = Rights._allows
    monkeypatch.setattr(Rights, "_allows", lambda self, op, name: found.append(name) or allows(self, op, name))
    for _ in range(5):
        assert asked.may_publish("a")
    assert found == ["a"]


# -- any filters -------------------------------------------------------------------------------------------------------

LEVEL = st.sampled_from(["a", "b", "", "$SYS", "%u"])
TOPIC = st.lists(st.sampled_from(["a", "b", "", "alice"]), min_size=1, max_size=4).map("/".join).filter(bool)
FILTER = st.builds(
    lambda levels, last: "/".join([*levels, *last]),
    st.lists(st.one_of(LEVEL, st.just("+")), min_size=1, max_size=3), st.sampled_from([[], ["#"]]),
).filter(bool)  # fmt: skip


@given(st.lists(FILTER, max_size=4), FILTER, st.lists(TOPIC, max_size=8))
def test_whatever_an_allowed_subscription_matches_is_matched_by_a_granted_filter(
    granted: list[str], filter: str, topics: list[str]
) -> None:
    asked = rights("alice", rules=(Permission(subscribe=tuple(granted), publish=tuple(granted)),))
    filled = [one.replace("%u", "alice") for one in granted]
    for topic in topics:
        by_some = any(matches(one, topic) for one in filled)
        assert asked.may_publish(topic) is by_some
        if asked.may(Operation.SUBSCRIBE, filter) and matches(filter, topic):
            assert by_some


def test_groups_that_something_else_names_count_beside_those_of_the_config() -> None:
    rules = Permissions(RULES, GROUPS)
    named = Identity("carol", ("desks", "others"), elsewhere=True)
    assert rules.rights(named, "c").may_publish("orders/carol/1")
    assert not rules.rights(Identity("carol"), "c").may_publish("orders/carol/1")
    assert not rules.rights(Identity("carol", ("others",)), "c").may_publish("orders/carol/1")
    assert not rules.rights(Identity("", ("desks",)), "c").may_publish("orders//1")
