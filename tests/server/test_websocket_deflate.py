"""Compression: once for all, bounded both ways, and never more than what was agreed on."""

from __future__ import annotations

import contextlib
import os
import tracemalloc
import zlib

import pytest
from bench.wires.websocket import BINARY, frame, request
from hypothesis import given
from hypothesis import strategies as st
from tests.server.websocket_stage import FILLER, House, Kernel, Loop

from headway.core.log import Pool
from headway.server.protocols import PROTOCOLS
from headway.server.websocket import CompressedStream, Rules, SharedDeflate
from headway.server.websocket.decoder import INFLATED_BYTES_MAX, FrameDecoder
from headway.server.websocket.deflate import (
    BURST_BYTES,
    BYTES_PER_S,
    INFLATE_BYTES,
    KEPT_BYTES,
    PIECE_BYTES,
    Inflater,
    accepts,
)

RULES = Rules(("/mqtt",), None, {"mqtt": "mqtt"}, compression=True)
TEXT_BYTES = b'{"tail": "N12345", "lat": 40.7, "lon": -74.0, "delay": 17}\n'


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def shared(memory: int = 1 << 30) -> tuple[SharedDeflate, Pool, Clock]:
    pool, clock = Pool("", memory, 0), Clock()
    return SharedDeflate(pool, clock), pool, clock


def opened(with_: SharedDeflate, offer: str = "permessage-deflate; client_max_window_bits",
           room: int = 1 << 40) -> tuple[CompressedStream, Kernel, str]:  # fmt: skip
    kernel, loop, house = Kernel(), Loop(), House()
    stream = CompressedStream(kernel, RULES, PROTOCOLS, loop, with_)  # type: ignore[arg-type]
    stream.open(house)
    kernel.incoming = [request("/mqtt", "localhost", "mqtt", f"Sec-WebSocket-Extensions: {offer}")[0]]
    loop.reader()
    assert house.open, house.said
    answer, kernel.wire, kernel.room = kernel.wire.decode(), b"", room
    return stream, kernel, answer


def plain(wire: bytes) -> bytes:
    """The bytes that a client reads, each message by itself."""
    got = b""
    while wire:
        size, at = wire[1], 2
        if size == 126:
            size, at = int.from_bytes(wire[2:4], "big"), 4
        assert len(wire) >= at + size
        payload = wire[at : at + size]
        got += zlib.decompressobj(-15).decompress(payload + b"\0\0\xff\xff") if wire[0] & 0x40 else payload
        wire = wire[at + size :]
    return got


@pytest.mark.parametrize(
    ("offer", "yes"),
    [
        ("permessage-deflate", True),
        ("permessage-deflate; client_max_window_bits", True),
        ("permessage-deflate; client_max_window_bits=10", True),
        ("permessage-deflate; server_no_context_takeover; client_no_context_takeover", True),
        ('permessage-deflate; server_max_window_bits="15"', True),
        ("permessage-deflate; server_max_window_bits=10", False),
        ("permessage-deflate; server_max_window_bits", False),
        ("permessage-deflate; client_max_window_bits=16", False),
        ("permessage-deflate; server_no_context_takeover=1", False),
        ("permessage-deflate; client_max_window_bits; client_max_window_bits", False),
        ("permessage-deflate; unknown", False),
        ("x-webkit-deflate-frame", False),
    ],
)
def test_offers(offer: str, yes: bool) -> None:
    assert accepts(offer) is yes
    _, _, answer = opened(shared()[0], offer)
    assert ("server_no_context_takeover; client_no_context_takeover" in answer) is yes
    assert ("Sec-WebSocket-Extensions" in answer) is yes


def test_the_second_offer_is_taken_where_the_first_cannot_be() -> None:
    _, _, answer = opened(shared()[0], "permessage-deflate; server_max_window_bits=9, permessage-deflate")
    assert "Sec-WebSocket-Extensions: permessage-deflate; " in answer


def test_the_same_bytes_are_compressed_once_for_all() -> None:
    deflate, pool, _ = shared()
    lane = TEXT_BYTES * 2000
    streams = [opened(deflate) for _ in range(20)]
    for stream, kernel, _ in streams:
        assert stream.send([memoryview(lane)[:5000], memoryview(lane)[5000:]]) == len(lane)
        assert plain(kernel.wire) == lane
        assert len(kernel.wire) < len(lane) / 10
    assert deflate.compressed_bytes == len(lane)
    assert deflate.found_bytes == 19 * len(lane)
    assert 0 < pool.memory_bytes <= KEPT_BYTES


def test_a_new_client_gets_it_in_small_pieces_and_compressed_too() -> None:
    """The records that are there when it subscribes, say."""
    deflate, _, _ = shared()
    lane = TEXT_BYTES * 1000
    for room in (1 << 40, 500):
        stream, kernel, answer = opened(deflate)
        kernel.room = room
        taken = stream.send_pieces(lane, 1024)
        while stream.unsent or taken < len(lane):
            kernel.room = 1 << 40
            stream.flush()
            taken += stream.send_pieces(lane[taken:], 1024)
        assert plain(kernel.wire) == lane
        assert len(kernel.wire) < len(lane) / 10
        assert stream.acknowledged(len(answer) + len(kernel.wire)) == len(lane)


def test_bytes_that_look_alike_are_not_taken_for_the_same() -> None:
    deflate, _, _ = shared()
    one, other = bytearray(TEXT_BYTES * 100), bytearray(TEXT_BYTES * 100)
    other[1000] ^= 1
    for data in (one, other, one):
        stream, kernel, _ = opened(deflate)
        assert stream.send([data]) == len(data)
        assert plain(kernel.wire) == bytes(data)


def test_what_is_kept_is_bounded_and_counted() -> None:
    deflate, pool, clock = shared(memory=2_000_000)
    for number in range(200):
        clock.now += 1
        deflate.frame(b"%06d" % number + TEXT_BYTES * 200)
        assert pool.memory_bytes <= 2_000_000 // 16


def test_beyond_its_share_of_the_loop_bytes_go_out_as_they_are() -> None:
    deflate, _, clock = shared()
    stream, kernel, _ = opened(deflate)
    for number in range(2 * BURST_BYTES // PIECE_BYTES):
        data = (b"%06d" % number + TEXT_BYTES * 600)[:PIECE_BYTES]
        assert stream.send([data]) == len(data)
    assert deflate.compressed_bytes == BURST_BYTES
    clock.now += 2 * PIECE_BYTES / BYTES_PER_S
    kernel.wire = b""
    assert stream.send([b"!" * PIECE_BYTES]) == PIECE_BYTES
    assert kernel.wire[0] == 0xC2


def test_noise_and_little_is_sent_as_it_is() -> None:
    deflate, _, _ = shared()
    stream, kernel, _ = opened(deflate)
    noise = os.urandom(4000)
    for data in (b"tiny", noise, noise):
        assert stream.send([data]) == len(data)
    assert kernel.wire == b"\x82\x04tiny" + 2 * (b"\x82\x7e\x0f\xa0" + noise)
    assert deflate.compressed_bytes == 4000, "it is not tried again"


@given(st.lists(st.integers(0, 90_000), min_size=1, max_size=4), st.lists(st.integers(0, 20_000), max_size=20),
       st.lists(st.booleans(), min_size=1, max_size=8))  # fmt: skip
def test_the_client_reads_what_was_taken(sizes: list[int], rooms: list[int], tight: list[bool]) -> None:
    deflate, _, clock = shared()
    stream, kernel, _ = opened(deflate, room=0)
    taken, turn = b"", 0
    for size in sizes:
        whole = (TEXT_BYTES * (size // len(TEXT_BYTES) + 1))[:size]
        while whole:
            clock.now += 0 if tight[turn % len(tight)] else 10
            turn += 1
            kernel.room = rooms.pop() if rooms else 1 << 40
            if stream.unsent:
                stream.flush()
                if stream.unsent:
                    continue
            count = 0
            with contextlib.suppress(BlockingIOError):
                count = stream.send([whole[:3], whole[3:]])
            taken += whole[:count]
            whole = whole[count:]
    kernel.room = 1 << 40
    stream.flush()
    stream.complete()
    got = plain(kernel.wire)
    assert got[: len(taken)] == taken
    filler = got[len(taken) :]
    assert filler == FILLER * (len(filler) // 2)


# -- in ---------------------------------------------------------------------------------------------------------------


def deflated(data: bytes) -> bytes:
    made = zlib.compressobj(9, zlib.DEFLATED, -15)
    return (made.compress(data) + made.flush(zlib.Z_SYNC_FLUSH))[:-4]


def message(data: bytes, *cuts: int) -> bytes:
    """A compressed message, in fragments."""
    payload, out, at = deflated(data), b"", 0
    for number, cut in enumerate([*cuts, len(payload)]):
        one = frame(payload[at:cut], 0 if number else BINARY, final=number == len(cuts))
        out += one if number else bytes((one[0] | 0x40,)) + one[1:]
        at = cut
    return out


def everything(decoder: FrameDecoder, data: bytes) -> bytes:
    got = decoder.feed(data)
    while decoder.more:
        part = decoder.feed(b"")
        assert len(part) <= INFLATED_BYTES_MAX
        got += part
    return got


@pytest.mark.parametrize("cuts", [(), (0,), (5,), (5, 5, 9), (1000,)])
def test_compressed_messages_are_read(cuts: tuple[int, ...]) -> None:
    data = TEXT_BYTES * 50
    decoder = FrameDecoder(Inflater())
    wire = message(data, *cuts) + frame(b"in clear") + message(b"", *cuts) + message(b"last", *cuts)
    assert everything(decoder, wire) == data + b"in clear" + b"last"
    again, got = FrameDecoder(Inflater()), b""
    for at in range(len(wire)):
        got += everything(again, wire[at : at + 1])
    assert got == data + b"in clear" + b"last"
    assert (decoder.over, again.over) == (None, None)


def test_a_bomb_is_read_a_part_at_a_time() -> None:
    decoder = FrameDecoder(Inflater())
    got = len(decoder.feed(message(bytes(20_000_000)) + frame(b"behind")))
    parts = 1
    while decoder.more:
        assert decoder.buffered_bytes < INFLATE_BYTES + 30_000
        got += len(decoder.feed(b""))
        parts += 1
    assert got == 20_000_000 + len(b"behind")
    assert parts > 20_000_000 // INFLATED_BYTES_MAX


def test_what_zlib_holds_in_the_middle_of_a_message_counts_and_is_freed_at_its_end() -> None:
    decoder = FrameDecoder(Inflater())
    wire = message(TEXT_BYTES * 50, 100, 100)
    assert decoder.buffered_bytes == 0
    decoder.feed(wire[:50])
    assert decoder.buffered_bytes >= INFLATE_BYTES
    tracemalloc.start()
    try:
        inflating = zlib.decompressobj(-15)
        inflating.decompress(deflated(os.urandom(40_000)))
        assert 32 * 1024 < tracemalloc.get_traced_memory()[0] <= INFLATE_BYTES
    finally:
        tracemalloc.stop()
    decoder.feed(wire[50:])
    assert decoder.buffered_bytes == 0


@pytest.mark.parametrize("size", [1_000_000, 3000], ids=["one message", "many messages"])
def test_compressed_messages_of_a_client_that_has_not_logged_in_do_not_become_large_before_its_turn(size: int) -> None:
    decoder, got = FrameDecoder(Inflater()), 0
    part = decoder.feed(message(bytes(size)) * (1_000_000 // size), 4096)
    while part:
        assert len(part) <= 4096
        got += len(part)
        part = decoder.feed(b"", 4096)
    assert got == 1_000_000 // size * size


def test_what_cannot_be_decompressed_ends_the_stream() -> None:
    decoder = FrameDecoder(Inflater())
    bad = frame(b"\xff" * 50)
    decoder.feed(bytes((bad[0] | 0x40,)) + bad[1:])
    assert decoder.over is not None
    assert decoder.over.code == 1007


def test_without_an_agreement_nothing_is_compressed() -> None:
    decoder = FrameDecoder()
    decoder.feed(message(b"x"))
    assert decoder.over is not None
    assert decoder.over.code == 1002
    deflate, _, _ = shared()
    stream, kernel, _ = opened(deflate, "nothing-that-is-known")
    assert stream.send([TEXT_BYTES * 100]) == 100 * len(TEXT_BYTES)
    assert deflate.compressed_bytes == 0
    assert kernel.wire[0] == 0x82
