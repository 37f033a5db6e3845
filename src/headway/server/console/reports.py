"""Reports: the HTML pages that ``headway pipeline health`` and ``headway lab`` have written, listed and served.

Rules:
- A page is served only if it says near its beginning that it is a report, and of which kind. Others are not there.
- Reports are in the folder of ``server.reports``, or one folder deeper. Files are opened part by part from there, and
  no part may be a link, so that no name leads out of the folder.
- A page runs its own code, for its plots. It is served in a sandbox: it has no origin, may ask nobody for anything, and
  cannot use the login of who looks at it.
- The disk is read in threads. At most ``LOOKED_AT`` names are looked at, and ``REPORTS_MAX`` reports are listed.
"""

from __future__ import annotations

import asyncio
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from headway.server.engine import Engine
from headway.server.http import Refusal, abort, json_answer

REPORTS_MAX = 200
LOOKED_AT = 2000
PIECE_BYTES = 1 << 18
HEAD_BYTES = 1024
"""The part of a file in which a report says that it is one."""
UNREAD_S = 60.0
NAME_CHARS_MAX = 500
HEADERS = {
    "Content-Security-Policy": "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; "
                               "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'; "
                               "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin", "Cache-Control": "no-store",
}  # fmt: skip
_KIND = re.compile(rb"<meta name='headway-report' content='([a-z]{1,20})'>")
_NO_LINK = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
"""Without waiting: a named pipe would have its reader wait for a writer."""


class Report(msgspec.Struct):
    name: str
    """The path below the folder."""
    kind: str
    wall_s: float
    bytes: int


class Reports:
    def __init__(self, engine: Engine) -> None:
        self._run = engine.loop.run_in_executor
        self._folder = engine.settings.server.reports

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/v1/reports", self._list), web.get(r"/v1/reports/{name:[\s\S]+}", self._one)]

    async def _list(self, _: web.Request) -> web.Response:
        folder = self._folder
        if folder is None:
            return json_answer({"folder": None, "reports": [], "total": 0})
        try:
            found = await self._run(None, listed, folder)
        except OSError as error:
            text = (error.strerror or str(error)).lower()
            raise Refusal(500, f"server.reports: {folder} cannot be read: {text}") from None
        answer: dict[str, Any] = {"folder": str(folder), "reports": found[:REPORTS_MAX], "total": len(found)}
        return json_answer(answer)

    async def _one(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        opened = None if self._folder is None else await self._run(None, _opened, self._folder, name)
        if opened is None:
            raise Refusal(404, "there is no such report; GET /v1/reports lists those there are")
        descriptor, report = opened
        reading = asyncio.Future[bytes]()
        reading.set_result(b"")
        response = web.StreamResponse(headers=HEADERS)
        response.content_type, response.charset, response.content_length = "text/html", "utf-8", report.bytes
        at = 0
        try:
            await response.prepare(request)
            while at < report.bytes:
                reading = self._run(None, os.pread, descriptor, min(PIECE_BYTES, report.bytes - at), at)
                piece = await asyncio.shield(reading)
                if not piece:
                    raise OSError("the file has become shorter")
                at += len(piece)
                async with asyncio.timeout(UNREAD_S):
                    await response.write(piece)
        except ConnectionError:
            pass  # the client is gone
        except OSError:  # the file, or a client that does not read (TimeoutError)
            abort(request)
        finally:
            # A request that is cancelled leaves a thread reading, and the descriptor must stay its file's until then.
            reading.add_done_callback(lambda _: os.close(descriptor))
        return response


def listed(folder: Path) -> list[Report]:
    """Returns the reports of a folder, the newest first. Raises OSError if it cannot be read."""
    found = []
    for name in _names(folder):
        if (opened := _opened(folder, name)) is not None:
            os.close(opened[0])
            found.append(opened[1])
    return sorted(found, key=lambda one: (-one.wall_s, one.name))


def _names(folder: Path) -> Iterator[str]:
    """Returns names that may be those of reports, here and one folder deeper."""
    left, deeper = LOOKED_AT, list[str]()
    with os.scandir(folder) as entries:
        for entry in entries:
            left -= 1
            if left < 0:
                return
            if entry.name.endswith(".html"):
                yield entry.name
            elif entry.is_dir(follow_symlinks=False):
                deeper.append(entry.name)
    for name in deeper:
        try:
            with _part(name, folder) as descriptor, os.scandir(descriptor) as entries:
                for entry in entries:
                    left -= 1
                    if left < 0:
                        return
                    if entry.name.endswith(".html"):
                        yield f"{name}/{entry.name}"
        except OSError:
            continue  # it is gone, or somebody else's


@contextmanager
def _part(name: str, folder: Path) -> Iterator[int]:
    """Opens a folder in this one, or the folder itself for ".". Raises OSError."""
    above = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        descriptor = os.open(name, _NO_LINK | os.O_DIRECTORY, dir_fd=above)
    finally:
        os.close(above)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _opened(folder: Path, name: str) -> tuple[int, Report] | None:
    """Opens a report, which the caller closes. Returns None for whatever is none, or cannot be opened."""
    if len(name) > NAME_CHARS_MAX or not name.endswith(".html") or "\0" in name:
        return None
    above, _, last = name.rpartition("/")
    if "/" in above or name.startswith("/") or above in (".", ".."):
        return None
    try:
        with _part(above or ".", folder) as at:
            descriptor = os.open(last, _NO_LINK, dir_fd=at)
    except (OSError, UnicodeEncodeError):
        return None
    try:
        report = _report(descriptor, name)
    except OSError:
        report = None
    if report is None:
        os.close(descriptor)
        return None
    return descriptor, report


def _report(descriptor: int, name: str) -> Report | None:
    """Returns what an open file is as a report; None: it is none. Raises OSError."""
    is_text = not any(0xD800 <= ord(char) <= 0xDFFF for char in name)  # else JSON could not name it
    found = os.fstat(descriptor)
    if not is_text or not stat.S_ISREG(found.st_mode):
        return None
    kind = _KIND.search(os.pread(descriptor, HEAD_BYTES, 0))
    return None if kind is None else Report(name, kind[1].decode(), found.st_mtime, found.st_size)
