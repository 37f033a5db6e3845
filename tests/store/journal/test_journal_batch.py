"""The format of a batch: what goes in comes out, and nothing that was changed is taken for whole."""

from __future__ import annotations

import pytest

from headway.store.journal.segments import batch
from headway.store.journal.segments.batch import BadBatch, Entry, Packed, StoredEntry

TOKEN = 0x1122334455667788


def packed(*entries: Entry, after: int = 0) -> list[Packed]:
    return batch.pack(entries, token=TOKEN, number=7, synced=6, time_us=-5, after=after)


def bytes_of(one: Packed) -> bytes:
    return b"".join(one.buffers)


def read(data: bytes, kinds: set[int] | None = None) -> tuple[batch.BatchHeader, list[StoredEntry]]:
    header = batch.header_of(data, TOKEN)
    return header, batch.entries_of(header, batch.body_of(data, header), kinds)


def test_what_was_packed_is_read_back() -> None:
    entries = [
        Entry(1, 10, 1, (b"ab", bytearray(b"cd"), memoryview(b"ef"))),
        Entry(255, 10, 0, ()),
        Entry(0, 2**40, 5, (b"x" * 10_000, b"y")),
    ]
    (one,) = packed(*entries)
    header, found = read(bytes_of(one) + b"what stands behind it")
    assert header == one.header
    assert (header.number, header.synced, header.time_us) == (7, 6, -5)
    assert (header.first_sequence, header.last_sequence) == (10, 2**40 + 4)
    assert one.size == len(bytes_of(one))
    assert [(e.kind, e.sequence, e.count, bytes(e.data)) for e in found] == [
        (e.kind, e.sequence, e.count, b"".join(e.data)) for e in entries
    ]
    assert [e.sequence for e in read(bytes_of(one), {255, 0})[1]] == [10, 2**40]


def test_a_batch_of_facts_has_no_sequences() -> None:
    (one,) = packed(Entry(1, 99, 0, (b"fact",)))
    assert (one.header.first_sequence, one.header.last_sequence) == (0, 0)


def test_any_change_of_any_byte_is_noticed() -> None:
    (one,) = packed(Entry(1, 10, 1, (b"some bytes",)), Entry(2, 11, 1, (b"",)))
    data = bytes_of(one)
    for at in range(len(data)):
        for bits in (0x01, 0x80, 0xFF):
            changed = bytearray(data)
            changed[at] ^= bits
            with pytest.raises(BadBatch):
                read(bytes(changed))


def test_a_batch_that_is_too_short_is_none() -> None:
    (one,) = packed(Entry(1, 10, 1, (b"some bytes",)))
    for size in range(one.size):
        with pytest.raises(BadBatch, match="the file ends after"):
            read(bytes_of(one)[:size])


def test_a_batch_of_another_stream_is_none() -> None:
    (one,) = packed(Entry(1, 10, 1, (b"x",)))
    with pytest.raises(BadBatch, match="another stream"):
        batch.header_of(bytes_of(one), TOKEN + 1)


def test_large_pieces_are_not_copied_and_small_ones_are_joined() -> None:
    large = bytearray(batch.PIECE_BYTES)
    (one,) = packed(*[Entry(1, n, 1, (b"s", b"m")) for n in range(1, 50)], Entry(1, 50, 1, (b"h", large, b"t")))
    assert len(one.buffers) == 4
    assert one.buffers[2] is large


def test_a_batch_has_a_limit_unless_it_is_one_entry() -> None:
    half = bytes(batch.BODY_BYTES // 2)
    batches = packed(
        *[Entry(1, n, 1, (half,)) for n in (1, 2, 3)], Entry(1, 4, 1, (half, half, half)), Entry(1, 5, 1, ())
    )
    assert [one.header.number for one in batches] == [7, 8, 9, 10, 11]
    assert [one.header.first_sequence for one in batches] == [1, 2, 3, 4, 5]
    many = packed(*[Entry(1, n, 1, (bytes(100),)) for n in range(1, 5001)])
    assert max(one.header.length for one in many) <= batch.BODY_BYTES
    assert sum(one.header.entries for one in many) == 5000 + len(many) - 1, "and a mark in each but the last"


@pytest.mark.parametrize(
    ("entry", "what"),
    [
        (Entry(256, 1, 1, ()), "kind 256"),
        (Entry(1, -1, 0, ()), "sequence -1"),
        (Entry(1, 1, 2**32, ()), "count"),
        (Entry(1, 5, 1, ()), "sequence 5 after 5"),
        (Entry(1, 2**64 - 1, 2, ()), "too large"),
        (Entry(1, 6, 1, (memoryview(b"abcd").cast("I"),)), "not of single bytes"),
        (Entry(1, 6, 1, (bytes(batch.ENTRY_BYTES_MAX), b"x")), "is the most"),
    ],
)
def test_what_cannot_be_written_is_refused(entry: Entry, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        packed(entry, after=5)


@pytest.mark.parametrize(
    ("length", "entries"), [(batch.BODY_BYTES_MAX + 1, 1), (2**32 - 1, 0), (16, 1), (100, 2**32 - 1)]
)
def test_impossible_sizes_are_refused_before_anything_is_read(length: int, entries: int) -> None:
    (one,) = packed(Entry(1, 10, 1, (b"x",)))
    data = bytearray(bytes_of(one))
    data[8:12] = length.to_bytes(4, "little")
    data[12:16] = entries.to_bytes(4, "little")
    with pytest.raises(BadBatch, match="impossible"):
        batch.header_of(data, TOKEN)
