"""The manifest: a file in the journal's folder that lists the streams, and from which segment to which each goes.

Batches have successive numbers, so a segment that is missing between two others leaves a hole. One that is missing at
either end of a stream leaves none, and neither does a whole stream, or a file that is cut at its end. So the ends are
written down: here, in one small file for all streams, because only a place outside a stream's folder can tell that the
folder is gone. (A field in the segments' headers was rejected: the last segment's header goes with its file.)

Theory of operation. The file is replaced atomically when a segment begins or is removed, which is once in 64 MB, by the
thread that writes the journal. Commits do not touch it. These orders keep a sound journal from ever looking damaged,
and damage from looking sound, whatever fails in between:

- A segment is listed when its header and its name are on disk, and before anything in it is confirmed. After a crash in
  between it is there without being listed; a start accepts that and lists it.
- A segment is taken off the list before its file is removed. After a crash in between the file is still there; a start
  accepts that and lists it again.
- While a failed write may have listed a segment that was given up, that segment's file stays.
- A clean stop also writes where each stream ends (``End``), once everything is on disk. A start takes these marks off
  before it writes to a stream. So after a kill there are no marks, and a short tail may be an unconfirmed write.

A journal of a release without manifests has none. Segments that are made since have a header of version 2 (segment.py):
where there is one, a missing manifest is damage, too.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from headway.store.journal.disk import Files, Misplaced, opened, read_all, write_file
from headway.store.journal.segments import (
    LISTED_VERSION,
    BadHeader,
    SegmentHeader,
    SegmentReader,
    file_name,
    ordinal_of,
)

MANIFEST_NAME = "manifest"
LOCK_NAME = "lock"
VERSION = 1
MANIFEST_BYTES_MAX = 64 * 1024 * 1024
"""A stream takes some 250 bytes, so a larger file is none of ours, and is not read to its end."""
_CRC_BYTES = 9
"""Bytes of the last line: the CRC-32 of the text before, in hexadecimal, and a line feed."""


_STREAM_NAME = re.compile(r"[a-z0-9_-]{1,64}")
_TAKEN = LOCK_NAME, MANIFEST_NAME, "staged"  # the folder of staged parts, which stands above this room


def is_stream_name(name: str) -> bool:
    """True if a stream can have the name. Other folders beside the streams, such as ``lost+found`` or a copy that
    somebody made, are not the journal's, and nothing reads them."""
    return _STREAM_NAME.fullmatch(name) is not None and name not in _TAKEN


class ListedSegment(msgspec.Struct, frozen=True):
    """A segment at either end of a stream, as its header describes it."""

    ordinal: int
    number: int
    """The number of its first batch."""
    sequence: int
    """The stream's last sequence before it."""


class End(msgspec.Struct, frozen=True):
    """Where a stream ended at a clean stop."""

    bytes: int
    """The length of the last segment."""
    number: int
    """The number of the last batch."""
    sequence: int
    """The last sequence."""


class ListedStream(msgspec.Struct, frozen=True):
    first: ListedSegment
    last: ListedSegment
    end: End | None = None
    """None if the broker is running, or was killed."""


class _Content(msgspec.Struct, frozen=True):
    streams: dict[str, ListedStream]
    version: int = VERSION


class BadManifest(Exception):
    """The manifest cannot be read; the text says why."""


def listed_stream(first: SegmentHeader, last: SegmentHeader) -> ListedStream:
    """Returns the entry of a stream that goes from one segment to another."""
    return ListedStream(_listed(first), _listed(last))


def _listed(header: SegmentHeader) -> ListedSegment:
    return ListedSegment(header.ordinal, header.first_number, header.last_sequence)


# -- the file ----------------------------------------------------------------------------------------------------------


def read_manifest(files: Files, folder: Path) -> dict[str, ListedStream] | None:
    """Returns the listed streams by name; None if there is no manifest. Raises BadManifest, Misplaced, OSError."""
    path = folder / MANIFEST_NAME
    try:
        with opened(files, path, read_only=True) as fd:
            data = read_all(files, fd, MANIFEST_BYTES_MAX + 1, 0)  # its size is that of a file that may replace it
    except FileNotFoundError:
        return None
    if len(data) > MANIFEST_BYTES_MAX:
        raise BadManifest(f"it is longer than {MANIFEST_BYTES_MAX} bytes")
    text, crc = data[:-_CRC_BYTES], data[-_CRC_BYTES:]
    if crc != _crc(text):
        raise BadManifest("its checksum is wrong")
    try:
        content = msgspec.json.decode(text, type=_Content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadManifest(str(error)) from None
    if content.version != VERSION:
        raise BadManifest(f"a manifest of version {content.version}; this Headway knows version {VERSION}")
    odd = [name for name in content.streams if not is_stream_name(name)]
    if odd:
        raise BadManifest(f"it lists {odd[0]!a:.80}, which cannot be a stream's name")
    return content.streams


def write_manifest(files: Files, folder: Path, streams: dict[str, ListedStream]) -> None:
    """Replaces the manifest atomically. Raises OSError; then the old one or the new one may be on disk."""
    text = msgspec.json.encode(_Content(streams)) + b"\n"
    write_file(files, folder / MANIFEST_NAME, text + _crc(text))


def _crc(text: bytes) -> bytes:
    return b"%08x\n" % zlib.crc32(text)


# -- for the writer ----------------------------------------------------------------------------------------------------


class Manifest:
    """The manifest of a journal that this process writes. For one thread."""

    def __init__(self, files: Files, folder: Path, streams: dict[str, ListedStream]) -> None:
        """``streams``: what the file is to list; nothing is written yet."""
        self._files = files
        self._folder = folder
        self.streams = streams
        self.stale = True
        """The file may differ from ``streams``. Until it is written, no batch may be, and no segment removed."""

    def write(self) -> None:
        """Raises OSError."""
        self.stale = True
        write_manifest(self._files, self._folder, self.streams)
        self.stale = False

    def refresh(self) -> None:
        """Writes the file if it is stale. Raises OSError."""
        if self.stale:
            self.write()

    def put(self, name: str, stream: ListedStream) -> None:
        """Lists a stream, on disk. Raises OSError; then the former entry counts, but the file is stale."""
        before = self.streams
        if self.stale or before.get(name) != stream:
            self.streams = {**before, name: stream}
            try:
                self.write()
            except BaseException:
                self.streams = before
                raise


# -- for readers -------------------------------------------------------------------------------------------------------


def headers_of(files: Files, folder: Path) -> list[SegmentHeader]:
    """Returns the valid headers of a stream's segments, in order. Raises OSError."""
    headers = []
    for path in segment_paths(files, folder):
        try:
            with SegmentReader(files, path) as reader:
                headers.append(reader.header())
        except (BadHeader, Misplaced):
            continue
    return headers


def is_listed(files: Files, folder: Path) -> bool:
    """True if one of the stream's segments was made by a release that writes manifests. Raises OSError."""
    return any(header.version >= LISTED_VERSION for header in headers_of(files, folder))


def manifest_of(files: Files, folders: Iterable[Path]) -> dict[str, ListedStream]:
    """Returns a manifest of the streams in these folders as they are. Raises OSError."""
    headers = {folder.name: headers_of(files, folder) for folder in folders}
    return {name: listed_stream(found[0], found[-1]) for name, found in headers.items() if found}


def missing_segments(files: Files, folder: Path) -> dict[str, list[Path]]:
    """Returns the missing files at the ends of streams, by stream, as far as the manifest tells. Reads no segment. A
    broker may be at work on the journal, so the manifest is read before and after the folders. Raises OSError."""
    try:
        before = read_manifest(files, folder) or {}
        there = {name: [ordinal_of(path.name) or 0 for path in segment_paths(files, folder / name)] for name in before}
        after = read_manifest(files, folder) or {}
    except (BadManifest, Misplaced):
        return {}
    missing: dict[str, list[Path]] = {}
    for name in before.keys() & after.keys():
        first, last, ordinals = after[name].first.ordinal, before[name].last.ordinal, there[name]
        gone = [first] if not ordinals or first < min(ordinals) else []
        gone += [last] if last > max([first, *ordinals]) else []
        if gone:
            missing[name] = [folder / name / file_name(ordinal) for ordinal in gone]
    return missing


def segment_paths(files: Files, folder: Path) -> list[Path]:
    """Returns the paths of a stream's segments, in order; none if there is no folder. Raises OSError."""
    try:
        return [folder / name for name in sorted(files.names(folder)) if ordinal_of(name) is not None]
    except (FileNotFoundError, Misplaced):
        return []
