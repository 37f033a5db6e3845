"""Logins: who guesses keeps nobody waiting but itself. The loop's clock is ours, and so is when a check is done."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest
from tests.scram_client import ScramClient

from headway.core.permission import Identity
from headway.server.config.auth import Users, hash_password
from headway.server.config.auth.tables import AuthTable
from headway.server.logins import Attempt, Logins
from headway.server.logins.guessers import ADDRESSES_MAX, FORGIVEN_S, FREE, WAIT_MAX_S, Guessers, network_of
from headway.server.logins.logins import FAULT, REFUSED_S
from headway.server.logins.password_checks import ANSWERS_PER_TURN, CHECKS_AT_ONCE, SUSPECT_S


class Checked(Users):
    """Everybody's password is its name."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(("ann", "bob", "carl", "dan"), "x"))

    def check(self, name: str, password: bytes) -> bool:
        if right := name.encode() == password:
            self._seen[name] = self._digest(name, password)
        return right


class Threads:
    """Each check is done when we say so, in the order in which they were begun."""

    def __init__(self) -> None:
        self.begun: list[tuple[Future[Any], Any, tuple[Any, ...]]] = []

    def submit(self, work: Any, *args: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.begun.append((future, work, args))
        return future

    @property
    def names(self) -> list[str]:
        return [args[0] for _, _, args in self.begun]

    def shutdown(self, **_: Any) -> None: ...


class Stage:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.logins = Logins(AuthTable(), loop)
        self.logins.passwords.users = Checked()
        self.logins.close()
        self.threads = self.logins.passwords._threads = Threads()  # type: ignore[assignment]
        self.tasks: list[asyncio.Task[bool]] = []

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def come(self, name: str, password: str, address: str = "here", *, there: bool = True) -> asyncio.Task[bool]:
        task = self.loop.create_task(self._is_let_in(Attempt(name, password.encode(), address), there))
        self.tasks.append(task)
        await self.settle()
        return task

    async def _is_let_in(self, attempt: Attempt, there: bool) -> bool:
        return isinstance(await self.logins.check(attempt, lambda: there), Identity)

    def reload(self, users: dict[str, str]) -> None:
        self.logins.reload(self.logins.prepared(AuthTable.model_construct(users=users)))

    async def done(self) -> str:
        """The check that was begun first is; whose it was."""
        future, work, args = self.threads.begun.pop(0)
        future.set_result(work(*args))
        await self.settle()
        return str(args[0])


@pytest.fixture
def now() -> list[float]:
    """The time; what sleeps wakes up when this is set forward."""
    return [1000.0]


def run(now: list[float], play: Any) -> None:
    class Loop(asyncio.SelectorEventLoop):
        def time(self) -> float:
            return now[0]

    with asyncio.Runner(loop_factory=Loop) as runner:
        loop = runner.get_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))

        async def whole() -> None:
            stage = Stage(loop)
            await play(stage)
            now[0] += REFUSED_S
            await stage.settle()
            for task in stage.tasks:
                task.cancel()

        runner.run(whole())


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


# -- addresses ---------------------------------------------------------------------------------------------------------


async def fail(stage: Stage, count: int, address: str = "there") -> None:
    for number in range(count):
        await stage.come(f"x{number}", "guess", address)


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
