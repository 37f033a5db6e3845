"""Holding the journal for a backup: ``POST /v1/journal/backup``.

The answer begins with a line that lists the journal's files and lengths (store/backup.py), and does not end: the
broker holds these files, that is, removes none, until the client closes the connection. A line break now and then shows
that it still does. The client copies the files by itself, so a backup takes nothing from the loop.

While files are held, what is not needed any more stays on disk, so the disk fills as if nothing were ever settled.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from pathlib import Path

import msgspec
from aiohttp import web

from headway import __version__
from headway.server.engine import Engine
from headway.server.http import USER, Refusal, Seats, abort, is_gone
from headway.store.backup import Contents, HeldFile
from headway.store.staged import Staged

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
