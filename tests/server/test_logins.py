"""Logins: who guesses keeps nobody waiting but itself. The loop's clock is ours, and so is when a check is done."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from tests.interop.waiting import holds
from tests.login_service import login_service
from tests.scram_client import ScramClient
from tests.server.logins_stage import Stage, fail, run

from headway.core.permission import Identity
from headway.server.config.auth import Users, hash_password
from headway.server.config.auth.tables import AuthTable, HookTable
from headway.server.logins import Attempt, Logins
from headway.server.logins.logins import ANSWERS_PER_TURN, FAULT, FREE, REFUSED_S, SUSPECT_S


def test_many_who_come_with_one_password_are_let_in_some_at_a_time(now: list[float]) -> None:
    """One is checked, and then all of them are known: each answer lets a client in, which is work."""

    async def play(stage: Stage) -> None:
        tasks = [stage.loop.create_task(stage._is_let_in(Attempt("ann", b"ann", "here"), True)) for _ in range(500)]
        await stage.settle()
        future, work, args = stage.threads.begun.pop(0)
        future.set_result(work(*args))
        counts = [0]
        for _ in range(100):
            await asyncio.sleep(0)
            counts.append(sum(task.done() for task in tasks))
        assert counts[-1] >= 499, "all but the one that is being checked beside it"
        steps = [after - before for before, after in pairwise(counts)]
        assert max(steps) <= 2 * ANSWERS_PER_TURN, steps
        assert all(task.result() for task in tasks if task.done())
        assert stage.threads.names == ["ann"]
        for task in tasks:
            task.cancel()

    run(now, play)


def test_a_flood_of_wrong_passwords_keeps_nobody_waiting(now: list[float]) -> None:
    async def play(stage: Stage) -> None:
        for _ in range(2):
            await stage.come("ann", "wrong", "there")
        for _ in range(2):
            await stage.done()
        for number in range(100):
            await stage.come("ann", f"guess {number}", "there")
        assert stage.threads.names == ["ann"]  # one thread is left to others
        bob, ann = await stage.come("bob", "bob"), await stage.come("ann", "ann")
        assert stage.threads.names == ["ann", "bob"]
        assert [await stage.done(), await stage.done()] == ["ann", "bob"]
        assert bob.done()
        assert bob.result()
        assert stage.threads.names[0] == "ann"  # from here, not from there
        while not ann.done():
            await stage.done()
        assert ann.result()
        assert len(stage.logins.passwords._waiting_suspects["ann", "there"]) > 90

    run(now, play)


def test_suspects_take_turns(now: list[float]) -> None:
    async def play(stage: Stage) -> None:
        for name in ("ann", "bob"):
            await stage.come(name, "wrong")
            await stage.done()
        for number in range(5):
            await stage.come("ann", f"guess {number}")
        bob = await stage.come("bob", "bob")
        assert [await stage.done() for _ in range(3)] == ["ann", "ann", "bob"]
        assert bob.done()
        assert bob.result()

    run(now, play)


def test_names_that_are_made_up_take_nobodys_time_and_are_refused_as_late_as_others(now: list[float]) -> None:
    async def play(stage: Stage) -> None:
        nobody = [await stage.come(f"x{number}", "guess", f"at {number}") for number in range(100)]
        ann = await stage.come("ann", "wrong")
        assert stage.threads.names == ["ann"]
        await stage.done()
        assert not ann.done()
        assert not any(one.done() for one in nobody)
        now[0] += REFUSED_S
        await stage.settle()
        assert not ann.result()
        assert not any(one.result() for one in nobody)

    run(now, play)


def test_of_many_that_come_with_one_password_one_is_checked(now: list[float]) -> None:
    async def play(stage: Stage) -> None:
        all_of_ann = [await stage.come("ann", "ann") for _ in range(50)]
        while stage.threads.begun:
            await stage.done()
        assert all(one.result() for one in all_of_ann)

    run(now, play)


def test_who_is_gone_is_passed_over(now: list[float]) -> None:
    async def play(stage: Stage) -> None:
        await stage.come("ann", "1")
        await stage.come("bob", "1")
        await stage.come("carl", "1", there=False)
        dan = await stage.come("dan", "dan")
        assert [await stage.done(), await stage.done(), await stage.done()] == ["ann", "bob", "dan"]
        assert dan.result()

    run(now, play)


def test_who_guessed_is_a_suspect_for_a_while_only(now: list[float]) -> None:
    async def play(stage: Stage) -> None:
        await stage.come("ann", "wrong")
        await stage.done()
        assert stage.logins.passwords._suspected(("ann", "here"))
        now[0] += SUSPECT_S
        assert not stage.logins.passwords._suspected(("ann", "here"))
        await stage.come("ann", "wrong")
        await stage.done()
        assert stage.logins.passwords._suspected(("ann", "here"))
        await stage.come("ann", "ann")
        await stage.done()
        assert not stage.logins.passwords._suspected(("ann", "here"))

    run(now, play)


def test_a_login_that_a_reload_overtakes_counts_by_what_is_in_force(now: list[float]) -> None:
    async def play(stage: Stage) -> None:
        left, stays = await stage.come("ann", "ann"), await stage.come("bob", "bob")
        stage.reload({"bob": "x", "carl": "x"})
        assert await stage.done() == "ann"
        assert await stage.done() == "bob"
        now[0] += REFUSED_S
        await stage.settle()
        assert not left.result(), "there is no such user any more"
        assert stays.result()

    run(now, play)


def test_a_reload_forgets_the_logins_of_those_who_have_changed(now: list[float]) -> None:
    async def play(stage: Stage) -> None:
        for name in ("ann", "bob"):
            await stage.come(name, name)
            await stage.done()
        before = stage.logins.passwords.users
        stage.reload(dict.fromkeys(("ann", "bob", "carl", "dan"), "x"))
        assert stage.logins.passwords.users is before, "nobody has changed"
        stage.reload({"ann": "y", "bob": "x"})
        assert stage.logins.known(Attempt("bob", b"bob", "here")) is not None
        assert stage.logins.known(Attempt("ann", b"ann", "here")) is None

    run(now, play)


@pytest.mark.parametrize("changed", [True, False])
def test_a_proof_that_a_reload_overtakes_counts_by_what_is_in_force(now: list[float], changed: bool) -> None:
    async def play(stage: Stage) -> None:
        old = {"ann": hash_password("leaked", scram_able=True)}
        stage.logins.passwords.users = Users(old)
        client, scram = ScramClient("ann", "leaked"), stage.logins.scram()
        assert scram is not None
        last = client.final(scram.first(client.first()))
        stage.reload({"ann": "y"} if changed else old | {"bob": "x"})
        proof = stage.loop.create_task(stage.logins.check_proof(scram, last, "here", lambda: True))
        await stage.settle()
        now[0] += REFUSED_S
        found, answer = await proof
        assert (isinstance(found, Identity), bool(answer)) == (not changed, not changed)

    run(now, play)


@pytest.mark.parametrize(("after", "asked_again"), [(None, 0), ("deny", 1), ("allow", 1), ("same", 0)])
def test_what_a_hook_says_that_a_reload_has_taken_away_does_not_count(after: str | None, asked_again: int) -> None:
    async def play() -> None:
        with login_service(lambda _: (200, "allow")) as old, login_service(lambda _: (200, str(after))) as new:
            old.held.clear()
            logins = Logins(AuthTable(hook=HookTable(url=old.url)), asyncio.get_running_loop())
            login = asyncio.ensure_future(logins.check(Attempt("ann", b"x", "here"), lambda: True))
            await holds(lambda: len(old.asked) == 1)
            url = old.url if after == "same" else new.url
            logins.reload(logins.prepared(AuthTable(hook=None if after is None else HookTable(url=url))))
            old.held.set()
            assert isinstance(await login, Identity) == (after in ("allow", "same"))
            assert len(new.asked) == asked_again
            logins.close()

    asyncio.run(play())


class AnyToken:
    """Verifies every token as its owner's."""

    async def check(self, _: Attempt) -> Identity:
        return Identity("mallory", elsewhere=True)


def test_who_has_a_token_is_not_trusted_with_the_password_of_the_name_beside_it(now: list[float]) -> None:
    async def play(stage: Stage) -> None:
        stage.logins.tokens = AnyToken()  # type: ignore[assignment]
        stage.logins.is_token = lambda password: password == b"token"  # type: ignore[method-assign]
        with_token = await stage.come("ann", "token", "there")
        assert with_token.result()
        await fail(stage, FREE + 3, "there")
        await stage.come("ann", "guess", "there")
        assert stage.threads.names == [], "it has to wait for its turn, as all from there"

    run(now, play)


@pytest.mark.parametrize("raised", [MemoryError("no room"), OSError("a fault")])
def test_a_check_that_fails_by_itself_is_answered_and_counted_and_is_nobodys_guess(
    now: list[float], raised: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def play(stage: Stage) -> None:
        for _ in range(2 * FREE):
            task = asyncio.ensure_future(stage.logins.check(Attempt("ann", b"ann", "here"), lambda: True))
            await stage.settle()
            stage.threads.begun.pop(0)[0].set_exception(raised)
            await stage.settle()
            now[0] += REFUSED_S
            assert await task == FAULT
        assert stage.logins.failed == {"fault": 2 * FREE}
        said = [one.getMessage() for one in caplog.records if "could not be checked" in one.getMessage()]
        assert said[0] == f"a login of 'ann' from here could not be checked: {type(raised).__name__}: {raised}"
        assert not any(one.exc_info for one in caplog.records)
        ann = await stage.come("ann", "ann")  # from there nobody has guessed
        await stage.done()
        await stage.settle()
        assert await ann

    run(now, play)
