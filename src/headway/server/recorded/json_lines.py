"""Recorded records as JSON lines, one object each, for clients without Arrow.

Data that is no text is in base64, in a field whose name ends in ``_base64``.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from headway.core.message import Run
from headway.server.recorded.parts import RunPart

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
    if run is None:
        return
    time = datetime.fromtimestamp(part.time_us / 1e6, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    properties = properties_of(run)
    for index, key in enumerate(part.keys):
        yield {
            "offset": part.first + index, "timestamp": time, "topic": run.topic, "key": key, "properties": properties,
            **_text("payload", run.payload(index)),
        }  # fmt: skip


def properties_of(run: Run) -> dict[str, Any]:
    """Returns the properties that are set."""
    said = run.properties
    found: dict[str, Any] = {"qos": run.qos, "retain": run.retain}
    if said.content_type is not None:
        found["content_type"] = said.content_type
    if said.response_topic is not None:
        found["response_topic"] = said.response_topic
    if said.correlation_data is not None:
        found |= _text("correlation_data", said.correlation_data)
    if said.user:
        found["user"] = list(said.user)
    return found


def _text(name: str, data: bytes) -> dict[str, str]:
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data).decode()}
