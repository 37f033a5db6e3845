"""Recorded records as JSON lines, one object each, for clients without Arrow (wire/json_forms.py)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from headway.server.recorded.parts import RunPart
from headway.wire.json_forms import properties_form, text_form

CHUNK_BYTES = 256 * 1024
PROGRESS_BYTES = 16 * 1024 * 1024
"""Bytes of unwanted records after which an empty chunk (``b""``) is yielded, so that the reader can see progress."""
_encode_into = msgspec.json.Encoder().encode_into


def to_json_lines(parts: Iterable[RunPart]) -> Iterator[bytes]:
    """Yields chunks of whole lines."""
    chunk, looked, line = bytearray(), 0, bytearray()
    for part in parts:
        looked += part.scanned_bytes
        for record in records_of(part):
            _encode_into(record, line)
            chunk += line
            chunk += b"\n"
            if len(chunk) >= CHUNK_BYTES:
                yield bytes(chunk)
                chunk.clear()
                looked = 0
        if looked > PROGRESS_BYTES:
            looked = 0
            yield b""
    if chunk:
        yield bytes(chunk)


def records_of(part: RunPart) -> Iterator[dict[str, Any]]:
    """Yields the records of a part, as objects for JSON."""
    run = part.run
    time = datetime.fromtimestamp(part.time_us / 1e6, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    properties = properties_form(run.properties, run.qos, retain=run.retain)
    for index, key in enumerate(part.keys):
        yield {
            "offset": part.first + index, "timestamp": time, "topic": run.topic, "key": key, "properties": properties,
            **text_form("payload", run.payload(index)),
        }  # fmt: skip
