"""The history: verdicts and ends of connections in files that outlive the process, one JSON object a line."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, time, timedelta
from enum import StrEnum
from fnmatch import translate
from heapq import merge
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from headway.core.base import Cause, ConfigError, Reason, parse_duration
from headway.core.policy import ActionKind, Reading, Verdict

# -- entry -------------------------------------------------------------------------------------------------------------
#
# Entries of the history: one verdict, or the end of one connection. Each is a line of JSON.
#
# Fields that are empty are left out of the line. A reader ignores fields that it does not know.


FILTER_CHARS_MAX = 500
TEXT_CHARS_MAX = 2_000


class EntryKind(StrEnum):
    """The kinds of entries. Each has files of its own, so that one cannot push out the other."""

    VERDICT = "verdict"
    END = "end"


class HistoryEntry(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One line of the history."""

    wall_s: float
    """Seconds since 1970."""
    time: str
    """The same in UTC, as ISO 8601 has it."""
    kind: EntryKind
    run: str
    """The start of the broker that wrote it. Numbers begin anew with each."""
    client: str
    user: str = ""
    listener: str = ""
    number: int = 0
    """The verdict's number in its run."""
    decision: str = ""
    """``fire``, or ``clear`` when a rule stepped back."""
    filter: str = ""
    policy: str = ""
    """Empty where no policy decided (pressure on a pool)."""
    rule: int = 0
    action: str = ""
    """The action as a config has it; a plugged-in action by its name."""
    which: str = ""
    """The records that a discard drops."""
    enforced: bool | None = None
    cause: Cause | None = None
    reason: str
    readings: tuple[Reading, ...] = ()
    window_s: float = 0.0
    held_s: float = 0.0
    """For a fire, how long the condition had held; for a clear, how long the rule was active."""
    relapses: int = 0
    """How often the consumer has relapsed since it began to go to and fro."""
    address: str = ""
    lasted_s: float = 0.0
    """How long the connection lasted."""
    admitted: bool | None = None
    """The client had a session."""
    text: str = ""

    @property
    def fires(self) -> bool:
        return self.decision == "fire"

    def verdict(self) -> dict[str, Any]:
        """Returns the verdict as ``GET /v1/why`` shows verdicts. It has no sample: entries do not keep it."""
        kind = self.action if self.action in list(ActionKind) else str(ActionKind.PLUGIN)
        name = self.action if kind != self.action else ""
        return {
            "number": self.number, "wall_s": self.wall_s, "client": self.client, "user": self.user,
            "filter": self.filter, "listener": self.listener, "policy": self.policy, "rule": self.rule,
            "kind": self.decision, "action": {"kind": kind, "which": self.which or None, "name": name},
            "reason": self.reason, "cause": self.cause, "enforced": self.enforced is not False,
            "readings": self.readings, "window_s": self.window_s, "held_s": self.held_s, "relapses": self.relapses,
            "text": self.text,
            "run": self.run,
        }  # fmt: skip

    def end(self) -> dict[str, Any]:
        """Returns the end as ``GET /v1/why`` shows ends."""
        return {
            "wall_s": self.wall_s, "client": self.client, "username": self.user, "listener": self.listener,
            "address": self.address, "lasted_s": self.lasted_s, "admitted": self.admitted is not False,
            "reason": self.reason, "text": self.text,
        }  # fmt: skip


def verdict_entry(verdict: Verdict, user: str, run: str) -> HistoryEntry:
    """Returns the entry for a verdict about a client that logged in as ``user``."""
    return HistoryEntry(
        wall_s=round(verdict.wall_s, 3), time=utc(verdict.wall_s), kind=EntryKind.VERDICT, run=run,
        client=verdict.client, user=user, listener=verdict.listener, number=verdict.number, decision=verdict.kind,
        filter=verdict.filter[:FILTER_CHARS_MAX], policy=verdict.policy, rule=verdict.rule, action=verdict.action.word,
        which=verdict.action.which or "", enforced=verdict.enforced, cause=verdict.cause, reason=verdict.reason,
        readings=verdict.readings, window_s=verdict.window_s, held_s=round(verdict.held_s, 3),
        relapses=verdict.relapses, text=verdict.text[:TEXT_CHARS_MAX],
    )  # fmt: skip


def end_entry(
    *, wall_s: float, client: str, user: str, listener: str, address: str, lasted_s: float, admitted: bool,
    reason: Reason, text: str, run: str,
) -> HistoryEntry:  # fmt: skip
    """Returns the entry for the end of a connection."""
    return HistoryEntry(
        wall_s=round(wall_s, 3), time=utc(wall_s), kind=EntryKind.END, run=run, client=client, user=user,
        listener=listener, address=address, lasted_s=lasted_s, admitted=admitted, reason=reason, text=text,
    )  # fmt: skip


def utc(wall_s: float) -> str:
    return datetime.fromtimestamp(wall_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


encode_entry = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(HistoryEntry).decode


def decode_entry(line: bytes) -> HistoryEntry | None:
    """Returns the entry of a line; None: the line is torn, or not of a history."""
    try:
        return _decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


# -- moment ------------------------------------------------------------------------------------------------------------
#
# Moments: points in time as people write them.


EPOCH_MIN = 100_000_000.0


def parse_moment(text: str, now_s: float, since: str | None = None) -> float:
    """Returns seconds since 1970: of ``8h`` (so long ago), ``03:00`` (the last time that it was so late),
    ``2026-11-23 03:00`` (local, unless it says otherwise), or of seconds since 1970. ``since``: the moment is the end
    of a span that begins then; a time of day is the first one after a time of day, and else that of today, which may
    be still to come. Raises ConfigError."""
    word = text.strip()
    try:
        seconds = float(word)
        if EPOCH_MIN <= seconds < 1e11:
            return seconds
    except ValueError:
        pass
    try:
        return now_s - parse_duration(word)
    except ConfigError:
        pass
    try:
        return datetime.fromisoformat(word).timestamp()
    except (ValueError, OverflowError, OSError):
        pass
    at = _time_of_day(word)
    if at is None:
        example = '"8h" (ago), "03:00", or "2026-11-23 03:00"'
        raise ConfigError(f'"{word[:60]}" is not a time such as {example}')
    now = datetime.fromtimestamp(now_s)
    then = datetime.combine(now, at)
    if since is None:
        return (then if then <= now else then - timedelta(days=1)).timestamp()
    if _time_of_day(since.strip()) is None:
        return then.timestamp()
    began = datetime.fromtimestamp(parse_moment(since, now_s))
    then = datetime.combine(began, at)
    return (then if then > began else then + timedelta(days=1)).timestamp()


def _time_of_day(word: str) -> time | None:
    try:
        return datetime.strptime(word, "%H:%M:%S" if word.count(":") == 2 else "%H:%M").time()
    except ValueError:
        return None


# -- files -------------------------------------------------------------------------------------------------------------
#
# Files of the history: lines are appended, and the oldest files are removed.
#
# Rules:
# - Each kind of entry has a series of files, ``FOLDER/<kind>s-<number>.jsonl``. Only the last one grows.
# - A series is limited in size and in age. A file is a small part of either limit, and is removed whole.
# - An append that fails leaves the file as it was. A torn last line of a crash is ended when the file is opened again;
#   readers skip it.
# - One broker at a time writes into a folder: it holds a lock on the folder itself, which leaves no file behind.


PARTS = 16
"""A file holds about this part of what its series may hold."""
PART_BYTES_MIN = 4_096
_HEAD_BYTES = 64 * 1024


class FolderLocked(Exception):
    """Another broker writes its history into this folder."""


class FolderLock:
    """Makes the folder, and locks it. Raises OSError, FolderLocked."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if not os.access(folder, os.W_OK | os.X_OK):
                raise PermissionError(13, "Permission denied", str(folder))
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._fd)
            raise FolderLocked(str(folder)) from None
        except OSError:
            os.close(self._fd)
            raise

    def close(self) -> None:
        os.close(self._fd)


class Series:
    """The files of one kind of entry. One thread appends to them."""

    def __init__(self, folder: Path, kind: EntryKind, bytes_max: int, keep_s: float) -> None:
        self._folder = folder
        self._kind = kind
        self._bytes_max = bytes_max
        self._keep_s = keep_s
        self.part_bytes = max(PART_BYTES_MIN, bytes_max // PARTS)
        """The size of one file, and the most that one append takes."""
        self._fd: int | None = None
        self._size = 0
        self._begun_s = 0.0
        """Time of the first entry of the open file."""

    def append(self, lines: bytes, wall_s: float) -> None:
        """Appends whole lines, at most ``part_bytes`` of them, and removes what is beyond the limits. Raises OSError;
        then nothing was appended."""
        fd = self._file(len(lines), wall_s)
        written = 0
        try:
            while written < len(lines):
                written += os.write(fd, lines[written:])
            os.fdatasync(fd)
        except OSError:
            self._undo(fd)
            raise
        self._size += len(lines)
        self.remove_old(wall_s)

    def _undo(self, fd: int) -> None:
        """Takes back a half-written append. Where that fails too, the next append goes to a new file."""
        try:
            os.ftruncate(fd, self._size)
        except OSError:
            self.close()

    def _file(self, more: int, wall_s: float) -> int:
        """Returns the open file to append to: the last one, or a new one. Raises OSError."""
        if self._fd is not None and os.fstat(self._fd).st_nlink == 0:
            self.close()  # somebody removed it
        if self._fd is None:
            self._reopen()
        old = wall_s - self._begun_s > self._keep_s / PARTS
        if self._fd is None or (self._size and (self._size + more > self.part_bytes or old)):
            self.close()
            last = files_of(self._folder, self._kind)[-1:]
            number = _number(last[0]) + 1 if last else 1
            path = self._folder / f"{self._kind}s-{number:08d}.jsonl"
            self._folder.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
            self._size, self._begun_s = 0, wall_s
        return self._fd

    def _reopen(self) -> None:
        """Opens the last file of an earlier start, and ends its last line if a crash tore it. Raises OSError."""
        last = files_of(self._folder, self._kind)[-1:]
        if not last or last[0].stat().st_size >= self.part_bytes:
            return
        self._fd = os.open(last[0], os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        self._size = os.fstat(self._fd).st_size
        first = decode_entry(os.pread(self._fd, _HEAD_BYTES, 0).partition(b"\n")[0])
        self._begun_s = first.wall_s if first is not None else 0.0
        if self._size and os.pread(self._fd, 1, self._size - 1) != b"\n":
            self._size += os.write(self._fd, b"\n")

    def remove_old(self, wall_s: float) -> None:
        """Removes files that have nothing younger than ``keep``, and the oldest beyond the size. Raises OSError."""
        found = [(path, path.stat()) for path in files_of(self._folder, self._kind)]
        total = sum(stat.st_size for _, stat in found)
        for number, (path, stat) in enumerate(found, 1):
            last = number == len(found)
            too_much = total > self._bytes_max - self.part_bytes and not last
            if not too_much and wall_s - stat.st_mtime <= self._keep_s:
                break
            if last:
                self.close()
            path.unlink()
            total -= stat.st_size

    @property
    def bytes(self) -> int:
        """The size of all files of the series; raises OSError."""
        return sum(path.stat().st_size for path in files_of(self._folder, self._kind))

    def close(self) -> None:
        if self._fd is not None:
            with suppress(OSError):
                os.close(self._fd)
            self._fd = None


_NAME = re.compile(r"([a-z]+)s-(\d{8,18})\.jsonl")


def files_of(folder: Path, kind: EntryKind) -> list[Path]:
    """Returns the files of a series, the oldest first; none if there is no such folder. Raises OSError."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = [match for name in names if (match := _NAME.fullmatch(name)) and match[1] == kind]
    return [folder / match[0] for match in sorted(found, key=lambda match: int(match[2]))]


def _number(path: Path) -> int:
    match = _NAME.fullmatch(path.name)
    return int(match[2]) if match else 0


# -- query -------------------------------------------------------------------------------------------------------------
#
# Search: entries of the history that match a query, newest first, without holding a file in memory.
#
# Files are read backwards in blocks. A block without the client's name is not parsed. A line that is no entry is
# skipped: a crash may have torn it.


BLOCK_BYTES = 256 * 1024
LINE_BYTES_MAX = 1024 * 1024
"""A longer line is of no history, and is skipped."""
CLOCK_SLACK_S = 60.0
"""By so much entries may be out of order: clocks are set."""


class Query(NamedTuple):
    """A question to the history. Empty: anything."""

    since_s: float = -inf
    until_s: float = inf
    client: str = ""
    """A client's name, or a pattern with ``*``, ``?`` and ``[…]``."""
    exact: bool = False
    """``client`` is a name, whatever characters it has."""
    cause: str = ""
    action: str = ""
    kinds: tuple[EntryKind, ...] = (EntryKind.VERDICT,)

    @property
    def named(self) -> bool:
        """Whether it asks for one client."""
        return bool(self.client) and (self.exact or not any(char in self.client for char in "*?["))


class Found(NamedTuple):
    """An entry and the line that it was read from."""

    entry: HistoryEntry
    line: bytes


def search(folder: Path, query: Query) -> Iterator[Found | None]:
    """Yields entries that match, the newest first, and None after each block, so that the caller can pause. Raises
    OSError."""
    series = [_keyed(_series(folder, kind, query)) for kind in query.kinds]
    return (found for _, found in merge(*series, key=lambda pair: pair[0]))


def matcher(query: Query) -> Callable[[HistoryEntry], bool]:
    """Returns a test of one entry."""
    fits = (lambda name: name == query.client) if query.named else (
        re.compile(translate(query.client)).match if query.client else lambda name: True
    )  # fmt: skip

    def test(entry: HistoryEntry) -> bool:
        return bool(
            entry.kind in query.kinds
            and query.since_s <= entry.wall_s <= query.until_s
            and (not query.cause or entry.cause == query.cause)
            and (not query.action or entry.action == query.action)
            and (fits(entry.client) or (entry.admitted is False and fits(entry.user)))
        )

    return test


def _keyed(found: Iterable[Found | None]) -> Iterator[tuple[float, Found | None]]:
    """Yields each with its place in the order. A pause keeps the place of the entry before it."""
    place = -inf
    for one in found:
        if one is not None:
            place = max(place, -one.entry.wall_s)
        yield place, one


def _series(folder: Path, kind: EntryKind, query: Query) -> Iterator[Found | None]:
    test, needles = matcher(query), _needles(query)
    for path in reversed(files_of(folder, kind)):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return  # it was removed meanwhile, and so was everything older
        try:
            if os.fstat(fd).st_mtime < query.since_s - CLOCK_SLACK_S:
                return
            for lines in _blocks(fd, needles):
                for line in reversed(lines):
                    entry = decode_entry(line)
                    if entry is None:
                        continue
                    if entry.wall_s < query.since_s - CLOCK_SLACK_S:
                        return
                    if test(entry):
                        yield Found(entry, line)
                yield None
        finally:
            os.close(fd)


def _needles(query: Query) -> list[bytes]:
    """Returns what every line that matches has in it. A name in an end may be that of the user."""
    needles = [msgspec.json.encode(query.client)] if query.named else []
    return needles + ([b'"cause":' + msgspec.json.encode(query.cause)] if query.cause else [])


def _blocks(fd: int, needles: list[bytes]) -> Iterator[list[bytes]]:
    """Yields the whole lines of each block that may match, from the end of the file to its beginning."""
    position, tail = os.fstat(fd).st_size, b""
    while position > 0:
        start = max(0, position - BLOCK_BYTES)
        data = os.pread(fd, position - start, start) + tail
        position, tail = start, b""
        if start:
            tail, newline, data = data.partition(b"\n")
            if not newline:
                data = b""
            if len(tail) > LINE_BYTES_MAX:
                tail = b""
        if all(needle in data for needle in needles):
            yield [line for line in data.split(b"\n") if line and all(needle in line for needle in needles)]
        else:
            yield []
