"""Records over HTTP: ``GET /v1/topics``, and the records of a topic as an Arrow stream or as JSON lines.

Theory of operation. The range of offsets is settled first, so that the headers can say where it ends. Then a worker
thread reads and encodes about a megabyte at a time, and the next megabyte only when the client has taken the last. So
no more than that is in memory, whatever is asked for, and the loop only hands it over.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from math import inf
from typing import NamedTuple

from aiohttp import web

from headway.core.base import ConfigError, Refused
from headway.core.message import BadTopic, validate_filter
from headway.server.engine import Engine
from headway.server.http import IDENTITY, Refusal, Seats, abort, is_gone, json_answer
from headway.server.recorded import (
    PROGRESS_BYTES,
    NotRecorded,
    OffsetGone,
    OffsetRange,
    RangeRequest,
    RecordedStream,
    RunPart,
    Trimmed,
    filters_of,
    latest,
    limited_stop,
    parse_range_request,
    read_parts,
    resolve_range,
    to_json_lines,
    whole_from,
)
from headway.server.streams.read_right import ReadRight
from headway.store.journal import Corrupt, ReadableStream

log = logging.getLogger("headway")

ARROW = "application/vnd.apache.arrow.stream"
JSON_LINES = "application/x-ndjson"
THREADS = 2
TRIES_MAX = 10
READERS_MAX = 32
UNREAD_S = 60.0
"""An answer of which the client takes nothing for this long is broken off."""
NO_ARROW = (
    "this broker has no pyarrow, so it cannot answer in Arrow: pip install 'headway[telemetry]' "
    "(format=json works without)"
)
Chunk = bytes | memoryview


class ReadRequest(NamedTuple):
    """A request for records: what to read, and how to send it."""

    sources: list[RecordedStream]
    filter: str
    right: ReadRight
    asked: RangeRequest
    on_disk: int
    """Last offset that is known to be on disk."""


class Begun(NamedTuple):
    """An answer whose first part is ready."""

    range: OffsetRange
    next_offset: int
    """The offset after this answer."""
    first: Chunk
    chunks: Iterator[Chunk]
    """The remaining parts."""


class RecordHandlers:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="headway-records")
        self._seats = Seats(READERS_MAX, "answers with records are under way")

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/v1/topics", self._topics), web.get("/v1/topics/{topic:.+}/records", self._records)]

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    # -- listing ----------------------------------------------------------------------------------------------------

    async def _topics(self, request: web.Request) -> web.Response:
        """Lists the recorded topics that the user may read."""
        recorded = recorded_streams(self._engine)
        readable = set(self._readable(request, recorded))
        journal = self._engine.journal
        keeps = {topic.filter: topic.keep for topic in self._engine.settings.topics}
        found = []
        for filter, source in recorded.items():
            assert journal is not None
            if filter not in readable:
                continue
            first_us, last_us = _times(source.stream)
            found.append({
                "filter": filter, "key": source.key.text if source.key else None, "keep": str(keeps.get(filter)),
                "earliest": whole_from([source.stream]), "latest": latest([source.stream], journal.committed_sequence),
                "bytes": source.stream.bytes, "first_time": _iso(first_us), "last_time": _iso(last_us),
            })  # fmt: skip
        return json_answer({"topics": found})

    # -- records ----------------------------------------------------------------------------------------------------

    async def _records(self, request: web.Request) -> web.StreamResponse:
        with self._seats.seat(request):
            return await self._answer(request)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        wanted = self._wanted(request)
        run = self._engine.loop.run_in_executor
        begun = await run(self._threads, _begin, wanted)
        headers = {
            "Headway-Earliest-Offset": str(begun.range.earliest), "Headway-Latest-Offset": str(begun.range.latest),
            "Headway-Next-Offset": str(begun.next_offset),
            "Content-Type": ARROW if wanted.asked.format == "arrow" else JSON_LINES,
        }  # fmt: skip
        if begun.range.deleted:
            headers["Headway-Deleted-Offsets"] = ",".join(map(str, sorted(begun.range.deleted)))
        response = web.StreamResponse(headers=headers)
        response.enable_chunked_encoding()
        await response.prepare(request)
        chunk: Chunk | None = None if request.method == "HEAD" else begun.first
        try:
            while chunk is not None:
                if is_gone(request):
                    break
                wanted.right.check()
                if len(chunk):
                    async with asyncio.timeout(UNREAD_S):
                        await response.write(chunk)
                chunk = await run(self._threads, next, begun.chunks, None)
            else:
                await response.write_eof()
        except ConnectionError:
            pass  # the client is gone
        except TimeoutError:
            log.info("records of %s: broken off, for its client read nothing for %g s", wanted.filter, UNREAD_S)
            abort(request)  # else it would end like a whole one, and a client that reads on would miss the rest
        except Refused as refused:
            log.info("records of %s: the answer ends here: %s", wanted.filter, refused)
            abort(request)
        except (Trimmed, Corrupt, OSError) as error:
            log.error("records of %s: the answer ends too early: %s", wanted.filter, _words(error))
            abort(request)
        return response

    def _wanted(self, request: web.Request) -> ReadRequest:
        """Raises Refusal."""
        recorded = recorded_streams(self._engine)
        topic = request.match_info["topic"]
        try:
            validate_filter(topic)
            right = ReadRight(self._engine, request[IDENTITY], topic)
            asked = parse_range_request(request.query, int(time.time() * 1e6))
            sources = [recorded[filter] for filter in filters_of(topic, recorded)]
        except (ConfigError, BadTopic) as error:
            raise Refusal(400, str(error)) from None
        except Refused as refused:
            raise Refusal(403, str(refused)) from None
        except NotRecorded:
            raise not_recorded(self._engine, request, topic, recorded) from None
        assert self._engine.journal is not None
        return ReadRequest(sources, topic, right, asked, self._engine.journal.committed_sequence)

    def _readable(self, request: web.Request, recorded: Iterable[str]) -> list[str]:
        return self._engine.permissions.readable(request[IDENTITY], recorded)


def not_recorded(engine: Engine, request: web.Request, topic: str, recorded: Iterable[str], at: str = "") -> Refusal:
    """Returns the answer to a request for a topic that is not recorded. It names only what the user may read."""
    readable = engine.permissions.readable(request[IDENTITY], recorded)
    return Refusal(404, f"{at}{NotRecorded(topic, readable)}", recorded=readable)


def recorded_streams(engine: Engine) -> dict[str, RecordedStream]:
    """Returns recorded topics by filter."""
    if engine.journal is None:
        return {}
    keys = {topic.filter: topic.key for topic in engine.settings.topics}
    archive = engine.journal.archive
    return {one.filter: RecordedStream(one.stream, keys.get(one.filter)) for one in archive.recorded.values()}


# -- in a worker thread -----------------------------------------------------------------------------------------------


def _begin(wanted: ReadRequest) -> Begun:
    """Raises Refusal."""
    if wanted.asked.format == "arrow" and not has_arrow():
        raise Refusal(501, NO_ARROW)
    tries_left = TRIES_MAX
    while True:
        tries_left -= 1
        try:
            return _begun(wanted)
        except Trimmed:  # records were deleted between two looks: the range is settled anew
            if not tries_left:
                raise Refusal(500, "records are deleted faster than they can be read") from None
        except ConfigError as error:
            raise Refusal(400, str(error)) from None
        except OffsetGone as error:
            raise Refusal(
                410, str(error), {"Headway-Earliest-Offset": str(error.earliest)}, earliest=error.earliest
            ) from None
        except (Corrupt, OSError) as error:
            raise Refusal(500, _words(error)) from None


def _begun(wanted: ReadRequest) -> Begun:
    sources, filter, _, asked, on_disk = wanted
    range = resolve_range(asked, sources, on_disk)
    stop = range.stop
    if (asked.bytes_max, asked.records_max) != (None, None):
        parts = read_parts(sources, filter, range.first, stop, range.deleted)
        stop = limited_stop(parts, asked.bytes_max or inf, asked.records_max or inf) or stop
    found = read_parts(sources, filter, range.first, stop, range.deleted)
    chunks = to_json_lines(found) if asked.format == "json" else _arrow(found, range, stop)
    return Begun(range, stop, next(chunks, b""), chunks)


def _arrow(found: Iterable[RunPart], range: OffsetRange, stop: int) -> Iterator[Chunk]:
    from headway.store import records

    offsets = {"earliest": range.earliest, "latest": range.latest, "next": stop}
    start = records.stream_start({f"headway.{name}_offset": str(offset) for name, offset in offsets.items()})
    columns, looked = records.Columns(), 0
    for part in found:
        looked += part.scanned_bytes
        if part.run:
            columns.add(part.run, part.first, part.time_us, part.keys)
        if columns.size >= records.BATCH_BYTES:
            data = records.stream_part(columns.batch())
            yield start + data if start else data
            columns, looked, start = records.Columns(), 0, b""
        elif looked > PROGRESS_BYTES:
            yield start
            looked, start = 0, b""
    yield start + (records.stream_part(columns.batch()) if len(columns) else b"") + records.STREAM_END


def has_arrow() -> bool:
    try:
        import headway.store.records  # noqa: F401  it may take a while the first time
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "pyarrow":
            raise
        return False
    return True


# -- answers ----------------------------------------------------------------------------------------------------------


def _words(error: Exception) -> str:
    if isinstance(error, Trimmed):
        return "records were deleted while they were read"
    if isinstance(error, OSError) and error.errno is not None:
        return f"the journal cannot be read: {errno.errorcode.get(error.errno, '')} {error.strerror}"
    return str(error)


def _times(stream: ReadableStream) -> tuple[int | None, int | None]:
    """Returns the times of the first and the last record, in microseconds."""
    segments = [segment for segment in stream.segments if segment.first_time_us is not None]
    return (segments[0].first_time_us, segments[-1].last_time_us) if segments else (None, None)


def _iso(time_us: int | None) -> str | None:
    if time_us is None:
        return None
    return datetime.fromtimestamp(time_us / 1e6, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
