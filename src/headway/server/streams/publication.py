"""A publication: a writer's batch, on its way from its parts to the consumers.

core/clients/publishers/writers.py has the rules.

A worker thread reads one part at a time, and makes runs of a little of it. The loop publishes a part of these in each
turn, and nothing while the writer is paused, as any publisher may be.

A batch that has begun is published to its end, because its writer begins no other before. So rows that cannot be
published, whatever the reason, are left out: the writer is told (``refused``), and the log says which they are.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import suppress
from itertools import islice
from pathlib import Path

from headway.core.base import Reason, Refused
from headway.core.clients import Origin, WriterBatch
from headway.core.consumer import Session
from headway.core.message import Run
from headway.core.permission import ALL_RIGHTS, Identity, Rights
from headway.server.engine import Engine
from headway.server.streams.read_right import check_token, token_left_s
from headway.store.staged import Staged

log = logging.getLogger("headway")

TURN_BYTES = 256 * 1024
TURN_RUNS = 200
READ_RUNS = 1000
"""Runs of a part that are in memory together. A run of a tiny row takes fifty times as much as the row."""
PART_ROWS = 1 << 32
"""More rows than a part has. The rows behind a part that cannot be read are counted as if it had so many: they may not
get the numbers of rows of it that were published before a restart."""


class Publication:
    def __init__(self, engine: Engine, staged: Staged, threads: Executor, writer: str, batch: WriterBatch) -> None:
        self.number = batch.number
        self.parts = batch.parts
        self.rows = 0
        """Rows published so far."""
        self.refused = ""
        """Why some of the rows were left out: a queue refused them, or they cannot be published; empty: none were."""
        self._row = 0
        """The first row that is still to be published."""
        self._engine = engine
        self._staged = staged
        self._threads = threads
        self._writer = writer
        self._user = batch.user
        """The user within whose permissions and limits it is published; None: that is not known, and nothing goes on
        before somebody asks for it again."""
        self._rights: Rights = ALL_RIGHTS
        self._version = -1
        """The version of the permissions that ``_rights`` are of."""
        self._go_on = asyncio.Event()
        self._start()

    def asked_again(self, user: Identity) -> None:
        """Goes on for who asks for the batch now: after a failure, or by a token that is good for longer."""
        if self.failed:
            self._user, self._version = user, -1
            self._start()
        elif self._user is not None and user.user == self._user.user:
            self._user, self._version = user, -1
            self._go_on.set()

    def _start(self) -> None:
        self.task = self._engine.loop.create_task(self._run())

    @property
    def failed(self) -> str:
        """The reason of the failure in one line; empty: it has not failed."""
        if not self.task.done() or self.task.cancelled():
            return ""
        error = self.task.exception()
        if error is None or isinstance(error, (ValueError, Refused)):
            return "" if error is None else str(error)
        if isinstance(error, OSError):
            return error.strerror or str(error)
        return f"internal error: {error}"

    @property
    def busy(self) -> bool:
        """Whether there is something left to publish."""
        return not self.task.done() or bool(self.failed)

    async def _run(self) -> None:
        try:
            await self._whole()
        except (OSError, ValueError, Refused) as error:
            log.error("batch %d of %s: %s", self.number, self._writer, error)
            raise
        except Exception:
            log.exception("batch %d of %s", self.number, self._writer)
            raise

    async def _whole(self) -> None:
        """Raises OSError, BadRows (a ValueError), Refused."""
        engine, name = self._engine, self._writer
        journal, writers = engine.journal, engine.broker.writers
        assert journal is not None
        if self._user is None:
            text = "an earlier release began it, and did not write down for whom: ask for it again"
            raise Refused(Reason.NOT_AUTHORIZED, text)
        await journal.flush()
        first = 0
        for part in self.parts:
            try:
                runs = await engine.loop.run_in_executor(self._threads, _read, self._staged.path(name, part))
            except Exception as error:
                if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
                    raise  # it may be read at another time
                first += PART_ROWS
                if self._row < first:
                    self._row = first
                    kept = await engine.loop.run_in_executor(self._threads, self._staged.set_aside, name, part)
                    at = f"; it is kept as {kept}" if kept else ""
                    self.refused = f"part {part} cannot be read, and is left out: {error}{at}"
                    log.error("batch %d of %s: %s", self.number, name, self.refused)
                continue
            rows = 0
            while some := await engine.loop.run_in_executor(self._threads, list, islice(runs, READ_RUNS)):
                await self._publish(some, first)
                rows = some[-1][0] + len(some[-1][1])
            first += rows
        await journal.flush()
        writers.done(name, engine.now())
        await journal.flush()
        # Parts of the next batch stay. A part that cannot be removed is no failure: published again from those that
        # are left, rows would be doubled.
        try:
            await engine.loop.run_in_executor(self._threads, self._staged.remove, name, self.parts, self.number)
        except OSError as error:
            log.warning("batch %d of %s is published; its parts stay for a day: %s", self.number, name, error)

    async def _publish(self, runs: list[tuple[int, Run]], first: int) -> None:
        engine, size, count = self._engine, 0, 0
        for row, run in runs:
            if first + row < self._row:
                continue
            session = await self._session(run)
            try:
                origin = Origin(self._writer, self.number, first + row)
                engine.broker.writers.publish(session, origin, run, engine.now())
            except Refused as refused:
                self.refused = str(refused)
            except Exception as error:
                at = first + row
                log.exception("batch %d of %s: rows %d to %d", self.number, self._writer, at, at + len(run) - 1)
                self.refused = f"rows {at} to {at + len(run) - 1} did not reach all consumers: internal error: {error}"
            engine.turn_soon()
            self.rows += len(run)
            self._row = first + row + len(run)
            size, count = size + len(run.data), count + 1
            if size > TURN_BYTES or count > TURN_RUNS:
                size = count = 0
                await asyncio.sleep(0)

    async def _session(self, run: Run) -> Session:
        """Returns the writer's session once it may publish a run. Raises Refused."""
        engine = self._engine
        while True:
            user = self._user
            assert user is not None
            check_token(user)
            if self._version != engine.permissions.version:
                self._version = engine.permissions.version
                engine.permissions.check_user(user)
                self._rights = engine.permissions.rights(user, self._writer)
            session = engine.broker.writers.attach(
                self._writer, self._go_on.set, engine.now(), self._rights, engine.allowances.of(user)
            )
            if not session.paused_by and not engine.broker.intake.lacks_room(session, run, engine.now()):
                return session
            self._go_on.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(token_left_s(user)):
                    await self._go_on.wait()


def _read(path: Path) -> Iterator[tuple[int, Run]]:
    from headway.store.rows import runs

    return runs(path.read_bytes())
