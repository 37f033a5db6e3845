"""Writers over HTTP: a Spark query publishes its batches, each exactly once.

core/clients/publishers.py has the rules.

``POST /v1/writers/NAME/parts`` stages rows, an Arrow stream, on disk, and answers with the name of the *part*. Any
number of tasks, and attempts at each, may do so side by side; with ``?batch=N`` those that batch N turns out not to be
made of are removed with it. ``PUT /v1/writers/NAME/batches/N`` with
``{"parts": [...], "wait_ms"}`` publishes these parts once, however often it is asked for; 202 says that it is not done
yet. ``DELETE .../parts/PART`` deletes a part, ``DELETE /v1/writers/NAME`` ends the writer.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from itertools import islice
from pathlib import Path

import msgspec
from aiohttp import web

from headway.core.base import Reason, Refused
from headway.core.clients import PROTOCOL, Origin, WriterBatch, WriterOutlet
from headway.core.consumer import Session
from headway.core.message import Run
from headway.core.permission import ALL_RIGHTS, Identity, Operation, Rights
from headway.server.engine import Engine
from headway.server.http import IDENTITY, USER, Quota, Refusal, address_of, json_answer, read_body, read_json
from headway.server.loop import Repeating
from headway.server.streams.read_right import check_right, check_token, token_left_s
from headway.store.journal import REAL
from headway.store.staged import STAGED, Staged, is_name

# -- publication -------------------------------------------------------------------------------------------------------
#
# A publication: a writer's batch, on its way from its parts to the consumers.
#
# core/clients/publishers.py has the rules.
#
# A worker thread reads one part at a time, and makes runs of a little of it. The loop publishes a part of these in each
# turn, and nothing while the writer is paused, as any publisher may be.
#
# A batch that has begun is published to its end, because its writer begins no other before. So rows that cannot be
# published, whatever the reason, are left out: the writer is told (``refused``), and the log says which they are.


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


# -- writers -----------------------------------------------------------------------------------------------------------


PART_BYTES_MAX = 32 * 1024 * 1024
PARTS_AT_ONCE = 4
PARTS_PER_CLIENT = 2
"""Limit of one user, or of one address where nobody is logged in: whoever sends slowly leaves room for others."""
TOPICS_AT_ONCE = 200
"""Topics whose permission is looked at before others have their turn. A part may have a million."""
PART_S = 60.0
"""Time for a part to arrive; others wait for their turn."""
BATCHES_AT_ONCE = 64
THREADS = 2
FREE_BYTES_MIN = 256 * 1024 * 1024
"""Free disk space that staged parts leave to the journal."""
WAIT_MS_MAX = 10_000
DAY_S = 86_400.0
STAGED_S = DAY_S
"""Age at which parts that were never published are removed."""
SILENT_S = 30 * DAY_S
"""A writer that is silent for this long is forgotten, and with it which of its batches are published."""
AWAY_S = 300.0
LOOK_EVERY_S = 60.0
NO_JOURNAL = "publishing exactly once needs the journal, and this broker has none: add [journal] to its config"
NO_ARROW = "this broker has no pyarrow, so it cannot take Arrow: pip install 'headway[telemetry]'"


class BatchRequest(msgspec.Struct, forbid_unknown_fields=True):
    parts: list[str]
    wait_ms: int = 0


class WriterHandlers:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="headway-writers")
        self._uploads = asyncio.Semaphore(PARTS_AT_ONCE)
        self._clients: dict[str, tuple[asyncio.Semaphore, int]] = {}
        """Clients whose parts come or wait: what lets them on, and how many there are."""
        self._publications: dict[str, Publication] = {}
        """The last publication of each writer."""
        self._heard_s: dict[str, float] = {}
        self._looks = Repeating(engine.loop, LOOK_EVERY_S, self._look)
        self._payload_bytes_max = max(one.packet_bytes_max for one in engine.settings.listeners.values())
        self.staged = Staged(REAL, engine.settings.journal.folder / STAGED)

        self._quota = Quota(engine.settings.server.writers_max, "server.writers_max", "DELETE /v1/writers/NAME",
                            self._there)  # fmt: skip

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/v1/writers/{name}/parts", self._part),
            web.delete("/v1/writers/{name}/parts/{part}", self._take_back),
            web.put(r"/v1/writers/{name}/batches/{number:\d{1,18}}", self._publish),
            web.delete("/v1/writers/{name}", self._forget),
        ]

    def start(self) -> None:
        """Continues publications that began before this process."""
        if self._engine.journal is not None:
            self._quota.restore((name, "") for name in self._engine.broker.writers.names())
            for name, batch in self._engine.broker.writers.unfinished().items():
                self._go_on(name, batch)
            self._looks.start()
            self._look()

    async def close(self) -> None:
        self._looks.stop()
        tasks = [one.task for one in self._publications.values() if not one.task.done()]
        for task in tasks:
            task.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- requests ---------------------------------------------------------------------------------------------------

    async def _part(self, request: web.Request) -> web.Response:
        name, batch = self._heard(request), request.query.get("batch")
        if batch is not None and not re.fullmatch(r"[0-9]{1,18}", batch):
            raise Refusal(400, f"{batch!r} cannot be the number of a batch: a whole number of at most 18 digits")
        async with self._uploads_of(request[USER] or address_of(request)), self._uploads:
            data = await read_body(request, PART_BYTES_MAX, PART_S)
            run = self._engine.loop.run_in_executor
            rows, left = await run(self._threads, self._checked, data)
            while some := list(islice(left, TOPICS_AT_ONCE)):
                check_right(self._engine, request, name, Operation.PUBLISH, *some)
                await asyncio.sleep(0)
            part = await run(self._threads, self._stage, name, data, None if batch is None else int(batch))
        return json_answer({"part": part, "rows": rows}, 201)

    @asynccontextmanager
    async def _uploads_of(self, client: str) -> AsyncIterator[None]:
        """Waits until the client has fewer parts on their way than it may."""
        turns, waiting = self._clients.get(client) or (asyncio.Semaphore(PARTS_PER_CLIENT), 0)
        self._clients[client] = turns, waiting + 1
        try:
            async with turns:
                yield
        finally:
            turns, waiting = self._clients.pop(client)
            if waiting > 1:
                self._clients[client] = turns, waiting - 1

    async def _take_back(self, request: web.Request) -> web.Response:
        name, part = self._name(request), request.match_info["part"]
        batch = self._engine.broker.writers.last(name)
        if not is_name(part):
            raise Refusal(400, f"{part!r} is not the name of a part")
        if batch is not None and part in batch.parts:
            raise Refusal(409, f"part {part} belongs to batch {batch.number}, which is being published")
        await self._engine.loop.run_in_executor(self._threads, self.staged.remove, name, [part])
        return web.Response(status=204)

    async def _publish(self, request: web.Request) -> web.Response:
        name, number = self._heard(request), int(request.match_info["number"])
        wish = await read_json(request, BatchRequest)
        publication = await self._publication(name, number, tuple(dict.fromkeys(wish.parts)), request[IDENTITY])
        if publication is None:
            return json_answer({"batch": number, "done": True, "rows": 0, "refused": ""})
        await asyncio.wait([publication.task], timeout=max(0, min(wish.wait_ms, WAIT_MS_MAX)) / 1000)
        if publication.failed:
            raise Refusal(503, f"batch {number} of {name} is not published to its end: {publication.failed}")
        done = publication.task.done()
        said = {"batch": number, "done": done, "rows": publication.rows, "refused": publication.refused}
        return json_answer(said, 200 if done else 202)

    async def _forget(self, request: web.Request) -> web.Response:
        name = self._name(request)
        batch = self._engine.broker.writers.last(name)
        if batch is not None and batch.parts:
            raise Refusal(409, f"batch {batch.number} of {name} is being published")
        self._leave(name)
        self._quota.leave(name)
        self._engine.broker.writers.forget(name)
        assert self._engine.journal is not None
        await self._engine.journal.flush()  # otherwise the next batch of its number might be taken for this one's
        return web.Response(status=204)

    # -- carrying out -----------------------------------------------------------------------------------------------

    def _name(self, request: web.Request) -> str:
        """Returns the writer's name in the request. Raises Refusal."""
        name = request.match_info["name"]
        if self._engine.journal is None:
            raise Refusal(404, NO_JOURNAL)
        if not is_name(name):
            raise Refusal(400, f"{name!r} cannot be a writer's name: letters, digits and . _ -, at most 128")
        check_right(self._engine, request, name, Operation.DECLARE, f"$writer/{name}")
        session = self._engine.broker.registry.sessions.get(name)
        if session is not None and session.protocol != PROTOCOL:
            raise Refusal(409, f"{name} is the name of a client that speaks {session.protocol}")
        return name

    def _there(self, name: str) -> bool:
        return name in self._heard_s or self._engine.broker.writers.last(name) is not None

    def _heard(self, request: web.Request) -> str:
        """Returns the writer's name, counts it in the user's quota, and notes the time. Raises Refusal."""
        name = self._name(request)
        self._quota.take(name, request[USER])
        self._heard_s[name] = self._engine.now()
        return name

    def _checked(self, data: bytearray) -> tuple[int, Iterator[str]]:
        """Checks rows. Returns their number, and their topics. Runs in a worker thread. Raises Refusal."""
        try:
            from headway.store.rows import BadRows, check, values_of
        except ImportError:
            raise Refusal(501, NO_ARROW) from None
        try:
            checked = check(data, self._payload_bytes_max)
        except BadRows as error:
            raise Refusal(400, str(error)) from None
        return checked.rows, values_of(checked.topics)

    def _stage(self, name: str, data: bytearray, batch: int | None) -> str:
        """Stages rows. Returns the name of the part. Runs in a worker thread. Raises Refusal."""
        try:
            if self.staged.free_bytes() - len(data) < FREE_BYTES_MIN:
                raise Refusal(503, f"the disk of {self.staged.folder} is full but for what the journal needs")
            return self.staged.add(name, bytes(data), batch)
        except OSError as error:
            raise Refusal(503, f"cannot write to {self.staged.folder}: {error.strerror or error}") from None

    async def _publication(
        self, name: str, number: int, parts: tuple[str, ...], user: Identity
    ) -> Publication | None:
        """Returns the publication of this batch, running or done; None: published long ago, or empty. Raises
        Refusal."""
        missing = [part for part in parts if not is_name(part)]
        missing += await self._engine.loop.run_in_executor(self._threads, self.staged.missing, name, parts)
        # From here on nothing waits until the batch has begun: requests that come together may not both begin one.
        running = self._publications.get(name)
        if running is not None and running.number == number:
            running.asked_again(user)
            await self._drop(name, [part for part in parts if part not in running.parts])
            return running
        last = self._engine.broker.writers.last(name)
        if last is not None and number <= last.number:
            await self._drop(name, parts)
            return None
        if running is not None and running.busy:
            raise Refusal(409, f"batch {running.number} of {name} is not published yet; it comes before {number}")
        if missing:
            raise Refusal(410, f"part {missing[0]} of batch {number} is not here any more: write the batch again")
        busy = sum(1 for one in self._publications.values() if one.busy)
        if busy >= BATCHES_AT_ONCE:
            raise Refusal(503, f"{busy} others are publishing already; try again later")
        if not parts:
            return None
        batch = self._engine.broker.writers.begin(name, number, parts, self._engine.now(), user)
        return self._go_on(name, batch)

    def _go_on(self, name: str, batch: WriterBatch) -> Publication:
        self._publications[name] = publication = Publication(
            self._engine, self.staged, self._threads, name, batch
        )
        return publication

    async def _drop(self, name: str, parts: Sequence[str]) -> None:
        """Removes parts whose rows are published from other parts, but none of the batch that is being published."""
        last = self._engine.broker.writers.last(name)
        some = [part for part in parts if is_name(part) and (last is None or part not in last.parts)]
        if some:
            await self._engine.loop.run_in_executor(self._threads, self.staged.remove, name, some)

    # -- silent writers ---------------------------------------------------------------------------------------------

    def _leave(self, name: str) -> None:
        self._publications.pop(name, None)
        self._heard_s.pop(name, None)
        session = self._engine.broker.registry.sessions.get(name)
        if session is not None and isinstance(session.outlet, WriterOutlet):
            self._engine.broker.writers.leave(session, self._engine.now())
            self._engine.turn_soon()

    def _look(self) -> None:
        """Detaches and forgets silent writers, and removes parts that were left over."""
        engine, now = self._engine, self._engine.now()
        busy = {name for name, one in self._publications.items() if one.busy}
        for name, heard_s in list(self._heard_s.items()):
            if now - heard_s > AWAY_S and name not in busy:
                self._leave(name)
        writers = engine.broker.writers
        for name in writers.silent(now - SILENT_S):
            self._quota.leave(name)
            writers.forget(name)
            engine.turn_soon()
        needed = {part for batch in writers.unfinished().values() for part in batch.parts}
        engine.loop.run_in_executor(self._threads, self._tidy, needed)

    def _tidy(self, needed: set[str]) -> None:
        """Removes old parts. Runs in a worker thread."""
        try:
            removed = self.staged.tidy(STAGED_S, needed)
        except OSError as error:
            log.error("cannot tidy %s: %s", self.staged.folder, error.strerror or error)
        else:
            if removed:
                log.warning("%d staged parts that nobody published for a day are removed", removed)
