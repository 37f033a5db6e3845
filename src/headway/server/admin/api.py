"""The admin API: JSON for ``headway top`` and ``headway why``, metrics for Prometheus. Access: access.py."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import ClientConnectionResetError, web
from aiohttp.http_exceptions import HttpProcessingError

from headway import __version__
from headway.core.consumer import Subscription
from headway.core.governance import conflated_by, peek, with_peer
from headway.core.policy import NO_POLICY, Policy, PolicyState, evaluate, explain
from headway.core.telemetry import stats
from headway.server.admin import health, javascript
from headway.server.admin.metrics import EACH_MAX, Listings, Metrics
from headway.server.admin.verdicts import Verdicts
from headway.server.config import TlsContext
from headway.server.console import Console, kick, operator
from headway.server.engine import Engine
from headway.server.http import (
    USER,
    AccessControl,
    AskedConfigs,
    HttpListener,
    Refusal,
    Seats,
    abort,
    below,
    is_gone,
    json_answer,
    work_of_choosing,
)
from headway.server.loop import Pulse, memory_peak_bytes, memory_rss_bytes
from headway.server.streams import CursorHandlers, RecordHandlers, StateHandlers, WriterHandlers
from headway.server.transport import bound
from headway.store.backup import Contents, HeldFile
from headway.store.staged import Staged

# -- backup ------------------------------------------------------------------------------------------------------------
#
# Holding the journal for a backup: ``POST /v1/journal/backup``.
#
# The answer begins with a line that lists the journal's files and lengths (store/backup.py), and does not end: the
# broker holds these files, that is, removes none, until the client closes the connection. A line break now and then
# shows that it still does. The client copies the files by itself, so a backup takes nothing from the loop.
#
# While files are held, what is not needed any more stays on disk, so the disk fills as if nothing were ever settled.


log = logging.getLogger("headway")

BEAT_S = 0.5
UNREAD_S = 60.0
HOLDS_MAX = 4
NO_JOURNAL = "this broker has no journal, so there is nothing to back up"


class BackupHandlers:
    def __init__(self, engine: Engine, staged: Staged) -> None:
        self._engine = engine
        self._staged = staged
        self._seats = Seats(HOLDS_MAX, "backups are being made")
        self._stopped = asyncio.Event()

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/v1/journal/backup", self._hold)]

    def stop(self) -> None:
        """Ends all answers: what they held is not held any more."""
        self._stopped.set()

    async def _hold(self, request: web.Request) -> web.StreamResponse:
        journal = self._engine.journal
        if journal is None:
            raise Refusal(404, NO_JOURNAL)
        run = self._engine.loop.run_in_executor
        with self._seats.seat(request):
            try:
                # Parts first, so that those which a batch in the journal names are among them.
                parts = await run(None, self._staged.hold)
                try:
                    files = await asyncio.wrap_future(journal.hold())
                    try:
                        return await self._answer(request, _contents(journal.store.folder, [*files, *parts]))
                    finally:
                        journal.release()
                finally:
                    run(None, self._staged.release)
            except OSError as error:
                raise Refusal(503, f"the journal cannot be written: {error.strerror or error}") from None

    async def _answer(self, request: web.Request, contents: Contents) -> web.StreamResponse:
        """Says what is held, and holds it until the client is gone."""
        response = web.StreamResponse(headers={"Content-Type": "application/json", "Cache-Control": "no-store"})
        response.enable_chunked_encoding()
        began, user = time.monotonic(), request[USER] or "a client"
        log.info("%s makes a backup: %d bytes of the journal are held", user, contents.bytes)
        try:
            await response.prepare(request)
            await response.write(msgspec.json.encode(contents))
            while not is_gone(request) and not self._stopped.is_set():
                async with asyncio.timeout(UNREAD_S):
                    await response.write(b"\n")
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stopped.wait(), BEAT_S)
        except (ConnectionError, TimeoutError):
            pass  # it is gone, or it stopped
        abort(request)  # an answer that ends well does not say that something is held no more
        log.info("the backup of %s is over after %.1f s; nothing is held for it", user, time.monotonic() - began)
        return response


def _contents(folder: Path, files: list[tuple[Path, int]]) -> Contents:
    held = [HeldFile(path.relative_to(folder).as_posix(), size) for path, size in files]
    return Contents(str(folder.absolute()), time.time_ns() // 1000, __version__, held)


# -- preview -----------------------------------------------------------------------------------------------------------
#
# Preview: the consumers that other policies would hit now, if every window were over.
#
# All consumers are checked, a slice at a time, as in metrics.py. The first ``EACH_MAX`` hits are listed one by one,
# and so are the first consumers that none of the policies covers.


COMPARISONS_A_LOOK = 64
"""So many topics that are compared with those of policies are as much work as a look at one consumer."""
CHARS_MAX = 2_000_000
"""Characters of clients' names in the rows. Each may have 64 KiB, and the rest of a row is about as long."""
OWN_TOPICS = "$SYS/"
"""Topics of the broker itself: no policy has to cover who watches them."""


def at_once(policy: Policy) -> Policy:
    """Returns the policy without windows: every rule fires at once."""
    rules = tuple(msgspec.structs.replace(rule, for_s=0.0, retries=0, times=1) for rule in policy.rules)
    return msgspec.structs.replace(policy, rules=rules)


async def preview(engine: Engine, policies: tuple[Policy, ...]) -> dict[str, Any]:
    registry = engine.broker.registry
    instant: dict[int, Policy] = {}
    """Policies without windows, by the identity of the original."""
    hits: list[dict[str, Any]] = []
    uncovered: list[dict[str, Any]] = []
    clients: set[str] = set()
    looked = total = without = work = chars = 0
    choosing = 1 + work_of_choosing(policies) // COMPARISONS_A_LOOK
    for session in list(registry.sessions.values()):
        for subscription in list(session.subscriptions.values()):
            looked += 1
            work += choosing
            if work >= stats.CLOSE_SLICE:
                work = 0
                await asyncio.sleep(0)
            if subscription.ended:
                continue
            now = engine.now()
            policy = registry.policy_of(subscription, policies)
            if policy is NO_POLICY and not subscription.filter.startswith(OWN_TOPICS):
                without += 1
                if len(uncovered) < EACH_MAX and (chars := chars + len(session.client)) < CHARS_MAX:
                    uncovered.append({"client": session.client, "filter": subscription.filter})
            if id(policy) not in instant:
                instant[id(policy)] = at_once(policy)
            sample = peek(registry, subscription, now, {})
            state = PolicyState()
            state.keyed = subscription.keyed
            if policy.plugged:
                governor = engine.broker.governor
                wall_s = now + registry.wall_offset_s
                sample = governor.plugged.measure(subscription, sample, policy.plugged, now, wall_s)
            for decision in evaluate(instant[id(policy)], state, sample, now):
                total += 1
                clients.add(session.client)
                if len(hits) < EACH_MAX and (chars := chars + len(session.client)) < CHARS_MAX:
                    filter = subscription.feed.key.filter
                    sample = with_peer(sample, subscription)
                    text = explain(decision, sample, client=session.client, filter=filter, policy=policy.name)
                    hits.append({"client": session.client, "filter": subscription.filter, "policy": policy.name,
                                 "rule": decision.rule + 1, "text": text})  # fmt: skip
    return {"hits": hits, "total": total, "clients": len(clients), "consumers": looked, "uncovered": uncovered,
            "uncovered_total": without}  # fmt: skip


# -- api ---------------------------------------------------------------------------------------------------------------


LAST_ANSWERS_S = 0.1
SUBSCRIPTIONS_LOOKED_AT = 1000
ROWS_BYTES_MAX = 4_000_000
"""Bytes of all rows of an answer."""
CONFLATED_MAX = 20
"""Subscriptions of a client that ``why`` looks at, and those that it lists as conflated."""
"""Time that answers have when the server stops. Some wait by design, and the stop must not wait for these."""


_log = logging.getLogger("headway.admin")
_NO_HTTP = (HttpProcessingError, web.RequestPayloadError, ClientConnectionResetError)


class Admin:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._listings = Listings(engine)
        self._metrics = Metrics(engine, self._listings)
        self._access = AccessControl(engine)
        self._asked = AskedConfigs(engine.loop)
        self._verdicts = Verdicts(engine)
        self._app = web.Application(middlewares=[self._access.enter])
        self._app.add_routes([
            web.get("/v1/broker", self._broker),
            web.get("/v1/consumers", self._consumers),
            web.get("/v1/publishers", self._publishers),
            web.get("/v1/queues", self._queues),
            web.get("/v1/verdicts", self._verdicts.answer),
            web.get(r"/v1/why/{client:[\s\S]+}", self._why),
            web.get("/v1/trials", self._trials),
            web.post("/v1/preview", self._preview),
            web.delete(r"/v1/clients/{client:[\s\S]+}", self._disconnect),
            web.get("/metrics", self._page),
            web.get("/metrics/consumers", self._consumers_page),
            web.get("/metrics/queues", self._queues_page),
        ])  # fmt: skip
        self._records = RecordHandlers(engine)
        self._cursors = CursorHandlers(engine)
        self._writers = WriterHandlers(engine)
        self._states = StateHandlers(engine)
        self._backups = BackupHandlers(engine, self._writers.staged)
        self._console = Console(engine, self._access.may_change, self._asked)
        self._app.add_routes([
            *self._records.routes(), *self._cursors.routes(), *self._writers.routes(), *self._states.routes(),
            *javascript.routes(), *health.routes(engine), *self._backups.routes(), *self._console.routes(),
        ])  # fmt: skip
        self._runner = web.AppRunner(self._app, shutdown_timeout=LAST_ANSWERS_S)
        self._making: dict[str, asyncio.Task[bytes]] = {}
        """Answers that are being made, by path."""
        self._listening: HttpListener | None = None
        self.url = ""

    async def start(self) -> None:
        """Gets ready to answer requests, wherever they come from."""
        await self._runner.setup()
        server, base_path = self._runner.server, self._engine.settings.server.base_path
        if base_path != "/" and server is not None:
            server.request_factory = below(base_path, server.request_factory)
        self._writers.start()
        self._console.start()

    def connection(self) -> asyncio.BaseProtocol:
        """Returns the protocol for a connection that somebody else accepted: it is given bytes, and a transport."""
        server = self._runner.server
        assert server is not None
        return self._access.connection(server)

    async def listen(
        self, host: str, port: int, tls: TlsContext | None = None, passed: socket.socket | None = None
    ) -> None:
        """Listens; with ``tls``, by HTTPS. ``passed``: a socket that listens already, in place of one at this address.
        Raises OSError if the address cannot be had."""
        engine, sock = self._engine, bound(host, port) if passed is None else passed
        self._listening = HttpListener(sock, engine.handshakes, engine.pulse, self.connection, tls)
        self.url = self._listening.url

    def renew(self, tls: TlsContext | None) -> None:
        """Takes other certificates for new connections."""
        if self._listening is not None and self._listening.tls is not None and tls is not None:
            self._listening.tls = tls

    async def stop(self) -> None:
        if self._listening is not None:
            self._listening.close()
        self._backups.stop()
        self._states.end_streams()
        _log.addFilter(_no_late_answer)
        try:
            await self._console.stop()
            await self._runner.cleanup()
        finally:  # also if the program does not wait for it
            _log.removeFilter(_no_late_answer)
            self._records.close()
            self._verdicts.close()
            self._cursors.close()
            self._states.close()
            await self._writers.close()

    async def _shared(self, request: web.Request, make: Callable[[], Awaitable[Any]]) -> bytes:
        """Returns what ``make`` makes, as JSON if it is no page. Requests at the same time share one answer, also its
        bytes: hundreds that ask at once cost as much as one."""
        path = request.match_info.route.resource.canonical  # type: ignore[union-attr]
        task = self._making.get(path)
        if task is None:
            task = self._making[path] = self._engine.loop.create_task(_made(make))
            task.add_done_callback(lambda _: self._making.pop(path))
        return await asyncio.shield(task)

    async def _broker(self, request: web.Request) -> web.Response:
        return _json(await self._shared(request, self._figures))

    async def _figures(self) -> dict[str, Any]:
        engine = self._engine
        body: dict[str, Any] = msgspec.to_builtins(await self._listings.whole())
        body |= {
            "version": __version__, "name": engine.settings.server.name,
            "uptime_s": round(engine.now() - engine.started_s, 3), "wall_s": time.time(),
            "connections": len(engine.connections), "memory_rss_bytes": memory_rss_bytes(),
            "memory_peak_bytes": memory_peak_bytes(), "longest_turn_ms": round(engine.longest_turn_s * 1000, 3),
            "loop": _loop(engine.pulse), "console": self._console.stats(),
            "connections_refused": engine.connections_refused, "protocol_errors": engine.protocol_errors,
        }  # fmt: skip
        telemetry = engine.telemetry
        if telemetry is not None:
            body["telemetry"] = {
                "run": telemetry.lake.run, "path": str(telemetry.lake.folder), "lake_bytes": telemetry.lake.bytes,
                "written_rows": telemetry.written_rows, "dropped_rows": telemetry.dropped_rows,
                "last_error": telemetry.last_error,
            }  # fmt: skip
        history = engine.history
        if history is not None:
            body["history"] = {
                "run": history.run, "path": str(history.folder), "bytes": history.bytes,
                "written_entries": history.written_entries, "dropped_entries": history.dropped_entries,
                "last_error": history.last_error,
            }  # fmt: skip
        if engine.journal is not None:
            body["journal"] = engine.journal.stats()
        return body

    async def _consumers(self, request: web.Request) -> web.Response:
        client = request.query.get("client")
        if client is not None:
            return json_answer(fitting(await self._listings.consumers(client)))
        return _json(await self._shared(request, self._listings.consumers))

    async def _publishers(self, request: web.Request) -> web.Response:
        return _json(await self._shared(request, self._listings.publishers))

    async def _queues(self, request: web.Request) -> web.Response:
        return _json(await self._shared(request, self._listings.queues))

    async def _why(self, request: web.Request) -> web.Response:
        client, broker = request.match_info["client"], self._engine.broker
        verdicts, ends = await self._verdicts.why(request, client)
        session = broker.registry.sessions.get(client)
        denied = self._engine.permissions.denied_to(client)
        if not verdicts and not ends and not denied and session is None:
            raise Refusal(404, f"nothing is known of a client {client!r}")
        return json_answer(fitting({
            "client": client,
            "connected": session is not None and session.connected,
            "readmitted_in_s": round(broker.flap.wait_s(client, self._engine.now()), 1),
            "conflated": _conflated(broker.registry.subscriptions_of(client).values()),
            "verdicts": verdicts,
            "trials": broker.governor.trials.of(client),
            "ends": ends,
            "denied": msgspec.to_builtins(denied),
        }))  # fmt: skip

    async def _trials(self, request: web.Request) -> web.Response:
        """Lists the trials, and their verdicts with numbers above ``after``, the oldest first."""
        try:
            after = int(request.query.get("after", "0"))
        except ValueError:
            raise Refusal(400, "after: the number of a verdict") from None
        broker = self._engine.broker
        trials = broker.governor.trials
        listed = [
            {"name": one.name, "verdicts": trials.made_by(one.name), "clients": trials.findings(one.name)}
            for one in broker.registry.trials
        ]
        found = {"trials": listed, "verdicts": trials.after(after, EACH_MAX), "last": trials.made}
        return json_answer(fitting(found))

    async def _preview(self, request: web.Request) -> web.Response:
        """Lists the clients that this config would hit now, if every window were over."""
        async with self._asked.policies(request) as policies:
            return json_answer(fitting(await preview(self._engine, policies)))

    async def _disconnect(self, request: web.Request) -> web.Response:
        kick(self._engine, request.match_info["client"], operator(request))
        return web.Response(status=204)

    async def _page(self, request: web.Request) -> web.Response:
        return _text(await self._shared(request, self._metrics.page))

    async def _consumers_page(self, request: web.Request) -> web.Response:
        return _text(await self._shared(request, self._metrics.consumers))

    async def _queues_page(self, request: web.Request) -> web.Response:
        return _text(await self._shared(request, self._metrics.queues))


async def _made(make: Callable[[], Awaitable[Any]]) -> bytes:
    made = await make()
    return made if isinstance(made, bytes) else msgspec.json.encode(fitting(made))


def fitting(tables: dict[str, Any]) -> dict[str, Any]:
    """Returns tables with as many of their first rows as have ``ROWS_BYTES_MAX`` together. Clients choose names of
    64 KiB, which are in every row of theirs."""
    left, found = ROWS_BYTES_MAX, dict[str, Any]()
    for name, table in tables.items():
        if not isinstance(table, list):
            found[name] = table
            continue
        rows = found[name] = list[msgspec.Raw]()
        for row in table:
            rows.append(msgspec.Raw(msgspec.json.encode(row)))
            left -= len(rows[-1])
            if left < 0:
                break
    return found


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")


def _text(page: bytes) -> web.Response:
    return web.Response(body=page, content_type="text/plain", charset="utf-8")


def _conflated(subscriptions: Iterable[Subscription]) -> list[dict[str, str]]:
    """Returns which subscriptions of a client are conflated, and by whom: some of them, if it has very many."""
    some = islice(subscriptions, SUBSCRIPTIONS_LOOKED_AT)
    found = ({"filter": one.filter, "by": by} for one in some if (by := conflated_by(one)))
    return list(islice(found, CONFLATED_MAX))


def _loop(pulse: Pulse) -> dict[str, Any]:
    """Returns how late the loop is, by cause."""
    return {
        "late_ms_longest": round(pulse.longest_s * 1000, 3), "late_longest": pulse.longest_words,
        "late_ms_lately": round(pulse.lately_s * 1000, 3),
        "late_ms": {cause: round(late_s * 1000, 3) for cause, late_s in pulse.late_s.items() if late_s},
    }  # fmt: skip


def _no_malformed(record: logging.LogRecord) -> bool:
    """Keeps malformed HTTP and clients that leave too soon out of the log: it has only faults of the broker."""
    return not (record.exc_info and isinstance(record.exc_info[1], _NO_HTTP))


def _no_late_answer(record: logging.LogRecord) -> bool:
    """Keeps an error out of the log that aiohttp raises if an answer is ready just when the stop gives up on it."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.InvalidStateError))


_log.addFilter(_no_malformed)
