"""Requests of one writer that come together: each batch is published once, and loses no part to another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest
from tests.passwords import cheap_hash
from tests.server.served import serve
from tests.server.test_http_greedy import part

from headway.core.permission import NOBODY, Identity
from headway.server.admin.api import Admin
from headway.server.http import Refusal
from headway.server.streams.writers import WriterHandlers
from headway.store.journal import REAL
from headway.store.journal.disk import RealFiles
from headway.store.staged import Staged

ROWS = 3
Outcome = int | str


class AtOnce(Executor):
    """Does everything in the loop's own thread, so that requests take their steps in turn."""

    def submit(self, call: Callable[..., Any], /, *args: Any, **more: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(call(*args, **more))
        except OSError as error:
            future.set_exception(error)
        return future


class Stage:
    def __init__(self, served: Admin) -> None:
        self.handlers: WriterHandlers = served._writers
        self.handlers._threads.shutdown()
        self.handlers._threads = AtOnce()  # type: ignore[assignment]
        self.writers = served._engine.broker.writers
        self.published: list[tuple[int, int]] = []
        """The batch and the first row of each run that was published."""
        publish = self.writers.publish

        def noted(session: Any, origin: Any, *rest: Any) -> None:
            self.published.append((origin.batch, origin.row))
            publish(session, origin, *rest)

        self.writers.publish = noted  # type: ignore[method-assign]

    def stage(self, batch: int | None = None) -> str:
        return self.handlers.staged.add("w", part(ROWS), batch)

    async def put(self, number: int, *parts: str) -> Outcome:
        """Returns the rows that were published, or how the request was refused."""
        try:
            publication = await self.handlers._publication("w", number, parts, NOBODY)
        except Refusal as refusal:
            return refusal.status
        if publication is None:
            return "already"
        await publication.task
        assert not publication.refused
        return publication.rows

    def times(self, batch: int) -> int:
        return self.published.count((batch, 0))

    def left(self) -> list[str]:
        return [path.stem for path in self.handlers.staged.folder.glob("w/*")]


def journal(folder: Path) -> str:
    return f'[journal]\npath = "{folder}/journal"\n'


def play(folder: Path, check: Callable[[Stage], Any]) -> None:
    async def whole(served: Admin) -> None:
        await check(Stage(served))

    serve(folder, whole, journal(folder))


@pytest.mark.parametrize(("order", "outcomes", "repeated"), [
    ((5, 4), [ROWS, "already"], ROWS), ((4, 5), [ROWS, 409], ROWS), ((5, 5), [ROWS, ROWS], ROWS),
])  # fmt: skip
def test_of_two_batches_that_are_asked_for_together_each_is_published_once_and_in_order(
    tmp_path: Path, order: Sequence[int], outcomes: list[Outcome], repeated: Outcome
) -> None:
    async def check(stage: Stage) -> None:
        parts = [stage.stage() for _ in order]
        assert await asyncio.gather(*map(stage.put, order, parts)) == outcomes
        assert await stage.put(5, stage.stage()) == repeated  # an answer got lost
        last = stage.writers.last("w")
        assert last is not None
        assert last.number == 5
        assert stage.times(5) == 1
        assert stage.times(4) == (order[0] == 4)

    play(tmp_path, check)


def test_what_is_staged_for_the_next_batch_stays(tmp_path: Path) -> None:
    async def check(stage: Stage) -> None:
        first, second = stage.stage(), stage.stage()
        assert await stage.put(1, first) == ROWS
        assert stage.left() == [second]
        assert await stage.put(2, second) == ROWS
        assert stage.left() == []

    play(tmp_path, check)


def test_parts_of_attempts_that_failed_go_with_the_batch_that_they_are_for(tmp_path: Path) -> None:
    async def check(stage: Stage) -> None:
        mine, others, unnumbered = stage.stage(9), [stage.stage(8), stage.stage(9)], stage.stage()
        later = stage.stage(10)
        assert await stage.put(9, mine) == ROWS
        assert not {mine, *others} & set(stage.left())
        assert await stage.put(10, later) == ROWS
        assert stage.left() == [unnumbered]

    play(tmp_path, check)


USERS = f"""
[auth.users]
ann = "{cheap_hash("")}"
[[permission]]
user = "ann"
publish = ["t/1"]
"""


@pytest.mark.parametrize(("user", "failed", "rows", "refused"), [
    ("ann", "", ROWS, "ann may not publish to 't/"), ("bob", "bob is no user any more", 0, ""),
])  # fmt: skip
def test_a_batch_that_a_restart_broke_off_goes_on_within_the_rights_of_who_asked_for_it(
    tmp_path: Path, user: str, failed: str, rows: int, refused: str
) -> None:
    async def begin(stage: Stage) -> None:
        engine = stage.handlers._engine
        stage.writers.begin("w", 1, (stage.stage(),), engine.now(), Identity(user))
        assert engine.journal is not None
        await engine.journal.flush()

    async def check(served: Admin) -> None:
        publication = served._writers._publications["w"]
        await asyncio.wait([publication.task])
        assert (publication.failed, publication.rows) == (failed, rows)
        assert refused in publication.refused
        if failed:  # whoever asks for it again may be another user
            publication.asked_again(Identity("ann"))
            await publication.task
            assert publication.rows == ROWS

    play(tmp_path, begin)
    serve(tmp_path, check, f"{journal(tmp_path)}{USERS}")


def test_folder_stays_while_a_part_is_written_into_it(tmp_path: Path) -> None:
    staged: Staged

    class Slow(RealFiles):
        """The writer's last part is removed, and old ones are tidied away, before the new one is begun."""

        def make_folder(self, path: Path) -> None:
            super().make_folder(path)
            staged.remove("w", [first], 9)
            staged.tidy(0.0, ())

    first = Staged(REAL, tmp_path).add("w", b"1")
    staged = Staged(Slow(), tmp_path)
    second = staged.add("w", b"2")
    assert [path.stem for path in tmp_path.glob("w/*")] == [second]
    staged.remove("w", [second])
    assert list(tmp_path.iterdir()) == []


def test_who_asks_for_an_earlier_batch_removes_no_part_of_the_one_that_is_being_published(tmp_path: Path) -> None:
    async def check(stage: Stage) -> None:
        mine = stage.stage()
        assert await asyncio.gather(stage.put(5, mine), stage.put(4, mine)) == [ROWS, "already"]

    play(tmp_path, check)


def test_parts_that_cannot_be_removed_are_no_reason_to_publish_again(tmp_path: Path) -> None:
    async def check(stage: Stage) -> None:
        parts = stage.stage(), stage.stage()
        remove = stage.handlers.staged.remove

        def failing(writer: str, parts: Sequence[str], through: int) -> None:
            remove(writer, parts[:1])
            raise OSError(5, "Input/output error")

        stage.handlers.staged.remove = failing  # type: ignore
        assert await stage.put(1, *parts) == 2 * ROWS
        assert await stage.put(1, *parts) == 2 * ROWS
        assert stage.times(1) == 1
        assert len(stage.published) == 2 * ROWS

    play(tmp_path, check)
