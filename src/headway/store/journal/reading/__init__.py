"""Reading: finds and reads the batches of a stream by sequence or time, in any thread and any process."""

from headway.store.journal.reading.readable_stream import ReadableStream
from headway.store.journal.reading.stream_reader import StreamReader

__all__ = [
    "ReadableStream", "StreamReader",
]
