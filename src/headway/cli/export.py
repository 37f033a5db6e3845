"""``headway export``: recorded records as Parquet or JSON lines, from a broker or from a journal's folder."""

from __future__ import annotations

import http.client
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.admin import AdminClient
from headway.cli.options import NOTHING_FOUND, needing, plainly, say
from headway.core.base import ConfigError, format_count, format_size

if TYPE_CHECKING:
    from headway.server.recorded import RunPart

ENDINGS = {".parquet": "parquet", ".json": "json", ".jsonl": "json", ".ndjson": "json"}
SAY_AFTER_S = 2.0
SAY_EVERY_S = 1.0
ANSWER_S = 60.0
"""The time that a broker may take to find the first record."""


@plainly
def export(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="A recorded topic, or a filter.", show_default=False)],
    start: Annotated[str, typer.Option("--from", metavar="WHEN", help="The first record.")] = "earliest",
    stop: Annotated[str, typer.Option("--to", metavar="WHEN", help="The first record that is left out.")] = "",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="By default standard output, as JSON lines.")
    ] = None,
    format: Annotated[
        str | None, typer.Option("--format", metavar="parquet|json", help="By default as the file's name ends.")
    ] = None,
    journal: Annotated[Path | None, typer.Option("--journal", metavar="FOLDER", help="Read a journal's files.")] = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", metavar="FILE", help="Read the journal that this config names.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="How to find keys, where the config does not say it.")
    ] = None,
    admin: Annotated[
        str | None,
        typer.Option(
            "--admin", metavar="URL", envvar="HEADWAY_ADMIN", show_envvar=False,
            help="Ask a running broker (without --journal and --config).  [default: http://127.0.0.1:9883]",
        ),
    ] = None,
) -> None:  # fmt: skip
    """Take recorded records out: a range of a topic, or of all topics a filter matches, as Parquet or JSON lines.

    WHEN is an offset, a time (2026-01-31T12:00:00Z), how long ago (-5m), or "earliest". Columns: offset, timestamp,
    topic, key, properties, payload. From a running broker, or from the files of a journal, beside a broker too. In
    JSON lines a payload that is not text is in base64, as payload_base64. Exit code 1: some of it could not be read.

    \b
    Examples:
      headway export 'flights/#' -o flights.parquet
      headway export flights/ua --from -5m | jq .key
      headway export 'flights/#' --from 2026-01-31 --to 2026-02-01 -o day.parquet --config headway.toml
      headway export 'flights/#' --journal /var/lib/headway --key /tailnum -o all.jsonl
    """
    form = _format(format, output)
    if journal is not None and config is not None:
        raise ConfigError("--journal and --config say the same: one of them")
    try:
        if journal is None and config is None:
            if key is not None:
                raise ConfigError("--key is for --journal: a broker knows its keys")
            whole = _from_broker(topic, start, stop, form, admin, output)
        else:
            whole = _from_folder(topic, start, stop, form, journal, config, key, output)
    except BrokenPipeError:  # whoever reads this has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    if not whole:
        raise typer.Exit(NOTHING_FOUND)


def _format(format: str | None, output: Path | None) -> str:
    ending = "" if output is None else output.suffix.lower()
    found = format or ("json" if output is None else ENDINGS.get(ending))
    if found not in ("parquet", "json"):
        raise ConfigError(
            f"--format {found}: there are parquet and json" if found else
            f"{output}: its name does not say what it is to be; --format parquet or json"
        )  # fmt: skip
    if found == "parquet" and output is None:
        raise ConfigError("Parquet needs a file: -o FILE")
    if output is not None and (output.is_dir() or not os.access(output.parent, os.W_OK)):
        raise ConfigError(f"{output}: cannot be written there")
    return found


# -- from the files ---------------------------------------------------------------------------------------------------


def _from_folder(topic: str, start: str, stop: str, form: str, journal: Path | None, config: Path | None,
                 key: str | None, output: Path | None) -> bool:  # fmt: skip
    """Exports from a journal's files; returns whether all of it could be read."""
    from headway.core.message import BadKey, compile_key
    from headway.server.offline import open_recorded, settings_for
    from headway.server.recorded import (
        OffsetGone,
        RangeRequest,
        Trimmed,
        parse_start,
        parse_stop,
        read_parts,
        resolve_range,
        to_json_lines,
    )
    from headway.store.journal import Corrupt

    now_us = int(time.time() * 1e6)
    asked = RangeRequest(parse_start(start, now_us), parse_stop(stop, now_us))
    try:
        by = compile_key(key) if key is not None else None
    except BadKey as error:
        raise ConfigError(str(error)) from None
    sources, said = open_recorded(settings_for(journal, config), topic, by)
    try:
        wanted = resolve_range(asked, sources)
    except OffsetGone as error:
        raise ConfigError(str(error).replace("from=", "--from ")) from None
    progress = ExportProgress()

    def found() -> Iterator[RunPart]:
        try:
            for part in read_parts(sources, topic, wanted.first, wanted.stop, wanted.deleted):
                progress.add(len(part.run), part.payload_bytes)
                progress.at((part.last - wanted.first + 1) / (wanted.stop - wanted.first))
                yield part
        except Corrupt as error:
            said.append(str(error))
        except Trimmed:
            said.append("the broker deleted records while they were read")

    if form == "json":
        _write_lines(to_json_lines(found()), output)
    else:
        with needing("telemetry", "Parquet"):
            from headway.store.records import batches, write_parquet
        _write(output, lambda path: write_parquet(path, batches(_columns(found()))))
    progress.end()
    for line in said:
        say(line)
    return not said


def _columns(found: Iterable[RunPart]) -> Iterator[tuple[Any, int, int, Any]]:
    for part in found:
        if part.run:
            yield part.run, part.first, part.time_us, part.keys


# -- from a broker ----------------------------------------------------------------------------------------------------


def _from_broker(topic: str, start: str, stop: str, form: str, admin: str | None, output: Path | None) -> bool:
    """Exports from a broker; returns whether all of it came."""
    query = {name: value for name, value in (("from", start), ("to", stop)) if value}
    broker, progress = AdminClient(admin, ANSWER_S), ExportProgress()
    if form == "json":
        with broker.records(topic, query | {"format": "json"}) as answer, _coming():
            _write_lines(_counted(iter(lambda: answer.read1(1 << 20), b""), progress), output)
    else:
        with needing("telemetry", "Parquet"):
            from headway.store.records import batches_of, write_parquet

        def read() -> Iterator[Any]:
            for batch in batches_of(answer):
                progress.add(batch.num_rows, batch.nbytes)
                yield batch

        with broker.records(topic, query) as answer, _coming():
            _write(output, lambda path: write_parquet(path, read()))
    progress.end()
    return True


@contextmanager
def _coming() -> Iterator[None]:
    """Wraps the reading of an answer: one that ends too early is reported in plain words."""
    try:
        yield
    except BrokenPipeError:
        raise
    except (http.client.HTTPException, TimeoutError, ConnectionError, ValueError):
        raise ConfigError("the broker's answer ended too early; ask again") from None


def _counted(chunks: Iterable[bytes], progress: ExportProgress) -> Iterator[bytes]:
    for chunk in chunks:
        progress.add(chunk.count(b"\n"), len(chunk))
        yield chunk


# -- writing ----------------------------------------------------------------------------------------------------------


def _write_lines(chunks: Iterable[bytes], output: Path | None) -> None:
    def fill(path: Path) -> None:
        with path.open("wb") as file:
            file.writelines(chunks)

    if output is not None:
        _write(output, fill)
    else:
        stdout = typer.get_binary_stream("stdout")
        stdout.writelines(chunks)
        stdout.flush()


def _write(output: Path | None, fill: Callable[[Path], None]) -> None:
    """Writes the file whole, or not at all."""
    from headway.store.atomic_write import atomic_write

    assert output is not None
    try:
        with atomic_write(output) as partial:
            fill(partial)
    except OSError as error:
        if isinstance(error, (ConnectionError, TimeoutError)):
            raise
        raise ConfigError(f"{output}: {(error.strerror or str(error)).lower()}") from None


class ExportProgress:
    """Progress of an export: a line on standard error that is written again and again after some time."""

    def __init__(self, now: Callable[[], float] = time.monotonic, stream: IO[str] | None = None) -> None:
        self._now = now
        self._stream = stream or sys.stderr
        self._said_s = now() + SAY_AFTER_S - SAY_EVERY_S
        self._records = self._bytes = 0
        self._share: float | None = None
        self._said = False

    def add(self, records: int, size: int) -> None:
        self._records += records
        self._bytes += size
        self._look()

    def at(self, share: float) -> None:
        """Notes how much of the range was looked at."""
        self._share = min(1.0, share)
        self._look()

    def _look(self) -> None:
        now = self._now()
        if now - self._said_s >= SAY_EVERY_S:
            self._said_s, self._said = now, True
            self._print()

    def _print(self) -> None:
        share = "" if self._share is None else f", {self._share:.0%}"
        line = f"headway: {format_count(self._records)} records, {format_size(self._bytes)}{share}"
        line = line[: shutil.get_terminal_size().columns - 1]
        end = "\x1b[K\r" if self._stream.isatty() else "\n"
        print(line, end=end, file=self._stream, flush=True)

    def end(self) -> None:
        if self._said:
            self._print()
            if self._stream.isatty():
                print(file=self._stream)
