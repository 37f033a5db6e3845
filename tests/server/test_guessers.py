"""Addresses that guess: each waits for its turn, and keeps nobody else waiting."""

from __future__ import annotations

import pytest
from tests.server.logins_stage import Stage, fail, run

from headway.server.logins.logins import (
    ADDRESSES_MAX,
    CHECKS_AT_ONCE,
    FORGIVEN_S,
    FREE,
    REFUSED_S,
    WAIT_MAX_S,
    Guessers,
    network_of,
)


def test_an_address_of_which_many_have_failed_waits_for_its_turn(now: list[float]) -> None:
    async def play(stage: Stage) -> None:
        await fail(stage, FREE)
        bob, elsewhere = await stage.come("bob", "bob", "there"), await stage.come("ann", "ann", "here")
        assert stage.threads.names == ["ann"]
        now[0] += 0.5
        await stage.settle()
        assert stage.threads.names == ["ann", "bob"]
        while stage.threads.begun:
            await stage.done()
        assert elsewhere.result()
        assert bob.result()
        later = await stage.come("bob", "other", "there")  # who was let in from there waits for nobody
        assert stage.threads.names == ["bob"]
        await stage.done()
        assert not later.done()

    run(now, play)


def test_turns_are_further_apart_with_each_failure_and_who_comes_too_early_is_not_checked(now: list[float]) -> None:
    async def play(stage: Stage) -> None:
        await fail(stage, FREE)
        for _ in range(5):
            stage.logins._guessers.failed("there", now[0])
        early = await stage.come("bob", "bob", "there")
        assert not stage.threads.begun
        now[0] += REFUSED_S
        await stage.settle()
        assert early.done()
        assert not early.result()
        assert stage.logins.failed["too_many"] > 0
        now[0] += FORGIVEN_S
        forgiven = await stage.come("bob", "bob", "there")
        await stage.done()
        assert forgiven.result()

    run(now, play)


@pytest.mark.parametrize("trusted", [True, False])
def test_guesses_at_once_are_no_better_than_one_at_a_time(now: list[float], trusted: bool) -> None:
    """Neither of who was let in from there before, nor of an address that is not slowed yet."""

    async def play(stage: Stage) -> None:
        if trusted:
            await stage.come("bob", "bob", "there")
            await stage.done()
            await fail(stage, FREE)
        guesses = [await stage.come("bob", f"guess {number}", "there") for number in range(60)]
        right = await stage.come("bob", "bob", "there")
        checked = 0
        while stage.threads.begun:
            await stage.done()
            checked += 1
        assert checked <= CHECKS_AT_ONCE + (0 if trusted else FREE)
        now[0] += REFUSED_S
        await stage.settle()
        assert not any(guess.result() for guess in guesses)
        assert stage.logins.failed["wrong"] == checked + (FREE if trusted else 0)
        assert stage.logins.failed["too_many"] == 60 + (not trusted) - checked
        assert right.result() == trusted, "its password is remembered"

    run(now, play)


def test_many_that_come_with_the_right_password_are_not_slowed(now: list[float]) -> None:
    async def play(stage: Stage) -> None:
        everybody = [await stage.come("ann", "ann", "there") for _ in range(200)]
        while stage.threads.begun:
            await stage.done()
        assert all(one.result() for one in everybody)
        assert not stage.logins.failed

    run(now, play)


def test_turns_of_those_who_come_at_once_follow_each_other() -> None:
    guessers = Guessers()
    told = [guessers.failed("a", 0.0) for _ in range(FREE + 2)]
    assert told == [False] * (FREE - 1) + [True, False, False]
    waits = [guessers.turn("a", 10.0) for _ in range(5)]
    assert waits == [0.0, 2.0, 4.0, 6.0, 6.0]  # two seconds apart; who would wait longer gets no turn
    assert waits[-1] > WAIT_MAX_S


def test_the_table_of_addresses_has_an_end() -> None:
    guessers = Guessers()
    for number in range(ADDRESSES_MAX + 50):
        for _ in range(FREE if number == 0 else 1):
            guessers.failed(f"a{number}", float(number))
    assert len(guessers._records) == ADDRESSES_MAX
    assert not guessers.turn("a0", 1.0)


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.0.0.7", "10.0.0.7"), ("::ffff:10.0.0.7", "10.0.0.7"), ("[2001:db8::1]", "2001:db8::/64"),
        ("2001:db8::ffff:1", "2001:db8::/64"), ("fe80::1%eth0", "fe80::/64"), ("somewhere", "somewhere"),
    ],
)  # fmt: skip
def test_of_an_ipv6_address_the_network_counts(address: str, network: str) -> None:
    assert network_of(address) == network
