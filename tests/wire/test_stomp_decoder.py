"""The decoder of STOMP: what each version's bytes say, in whatever pieces they come."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from headway.core.base import Reason
from headway.wire.stomp.decoder import (
    CONNECT_BYTES_MAX,
    FRAME_WORK,
    HEAD_BYTES_MAX,
    HEADERS_MAX,
    UNEVEN_MAX,
    StompDecoder,
)
from headway.wire.stomp.versions import V1_0, V1_1, V1_2, Acks, Connect, Frame, Item, Sent, StompFault, Version

MOST = 1_000_000
ACCEPT = {V1_0: b"", V1_1: b"accept-version:1.0,1.1\n", V1_2: b"accept-version:1.2,1.1\n"}


def connected(version: Version = V1_2) -> StompDecoder:
    decoder = StompDecoder(MOST)
    (connect,) = decoder.feed(b"CONNECT\n" + ACCEPT[version] + b"\n\0")
    assert isinstance(connect, Connect)
    assert connect.version is version
    return decoder


def shown(items: list[Item]) -> list[object]:
    """Items in plain values; a run as its bodies, without how they are grouped."""
    found: list[object] = []
    for item in items:
        if isinstance(item, Sent):
            bodies = [item.run.payload(index) for index in range(len(item.run))]
            assert item.run.ends[-1] == len(item.run.data)
            found += [(dict(item.headers), item.run.topic, item.run.exchange, body) for body in bodies]
        else:
            found.append(item)
    return found


@pytest.mark.parametrize(
    ("version", "value"),
    [(V1_0, "a\\nb\\c\\\\d\\re:f"), (V1_1, "a\nb:\\d"), (V1_2, "a\nb:\\d\re")],
)
def test_escapes_are_those_of_the_version(version: Version, value: str) -> None:
    raw = {V1_0: b"a\\nb\\c\\\\d\\re:f", V1_1: b"a\\nb\\c\\\\d", V1_2: b"a\\nb\\c\\\\d\\re"}[version]
    (frame,) = connected(version).feed(b"ABORT\ntransaction:" + raw + b"\n\n\0")
    assert isinstance(frame, Frame)
    assert frame.headers["transaction"] == value


@pytest.mark.parametrize(("version", "raw"), [(V1_1, b"a\\r"), (V1_1, b"a\\t"), (V1_2, b"a\\x"), (V1_2, b"a\\")])
def test_unknown_escapes_are_errors(version: Version, raw: bytes) -> None:
    decoder = connected(version)
    assert decoder.feed(b"ABORT\ntransaction:" + raw + b"\n\n\0") == []
    assert "does not know" in str(decoder.error)


def test_the_first_of_a_header_counts_and_connect_is_not_escaped() -> None:
    decoder = StompDecoder(MOST)
    (connect,) = decoder.feed(b"\r\n\nSTOMP\r\naccept-version:1.1,1.2,9\r\nlogin:a\\cb\r\nlogin:c\r\n\r\n\0\r\n")
    assert connect == Connect({"accept-version": "1.1,1.2,9", "login": "a\\cb"}, V1_2)
    assert StompDecoder(MOST).feed(b"CONNECT\naccept-version:2.0\n\n\0") == [Connect({"accept-version": "2.0"}, None)]


ONE = b"SEND\ndestination:/topic/a.b\ncontent-length:5\n\na\0\nb\0\0\n"
OPEN = b"SEND\ndestination:/queue/q\n\nbody\0"
STREAM = ONE * 3 + b"\n\n" + OPEN * 2 + b"\n" + OPEN + b"BEGIN\ntransaction:t\n\n\0\r\n" + ONE + (
    b"SEND\ndestination:/exchange/e/k.l\n\n\0SEND\ndestination:/queue/%25\n\nx\0"
)  # fmt: skip


def test_all_sizes_of_reads_give_the_same() -> None:
    whole = connected()
    expected = shown(whole.feed(STREAM))
    assert whole.error is None
    one = ({"destination": "/topic/a.b", "content-length": "5"}, "a/b", "amq.topic", b"a\0\nb\0")
    assert expected[:3] == [one] * 3
    assert expected[3:6] == [({"destination": "/queue/q"}, "q", "", b"body")] * 3
    assert expected[6] == Frame("BEGIN", {"transaction": "t"})
    assert [item[1:] for item in expected[8:]] == [("k/l", "e", b""), ("%", "", b"x")]  # type: ignore[index]
    for size in (1, 2, 3, 7, 31, 100):
        decoder, found = connected(), []
        for at in range(0, len(STREAM), size):
            found += shown(decoder.feed(STREAM[at : at + size]))
        assert found == expected, size
        assert (decoder.error, decoder.buffered_bytes, decoder.packets) == (None, 0, whole.packets)


def test_neighbours_with_one_head_are_one_run() -> None:
    for frame, count in ((ONE, 50), (OPEN, 50)):
        (item,) = connected().feed(frame * count)
        assert isinstance(item, Sent)
        assert len(item.run) == count
    (item,) = connected().feed(OPEN * 50)
    assert type(item) is Sent
    assert type(item.run.ends) is range, "those of one size are not read one by one"
    receipts = connected().feed(b"SEND\ndestination:/queue/q\nreceipt:1\n\nx\0" * 3)
    assert len(receipts) == 3, "each has a receipt of its own"


def test_a_nul_ends_a_body_also_in_a_frame_of_the_same_size() -> None:
    short = OPEN[:-2] + b"\0\0"
    (item,) = connected().feed(OPEN * 3 + short + OPEN)
    assert isinstance(item, Sent)
    assert [item.run.payload(at) for at in range(5)] == [b"body", b"body", b"body", b"bod", b"body"]


def test_bodies_of_many_sizes_are_work() -> None:
    decoder = connected()
    frames = b"".join(OPEN[:-1] + b"x" * (at % 2) + b"\0" for at in range(3 * UNEVEN_MAX))
    (item,) = decoder.feed(frames, UNEVEN_MAX // 2)
    assert isinstance(item, Sent)
    assert len(item.run) == UNEVEN_MAX
    assert decoder.extra_work >= UNEVEN_MAX // 2


@pytest.mark.parametrize(("version", "header"), [(V1_0, "message-id"), (V1_1, "message-id"), (V1_2, "id")])
def test_neighbouring_acks_are_one_item(version: Version, header: str) -> None:
    decoder = connected(version)
    plain = "".join(f"ACK\n{header}:{number:015}\n\n\0" for number in range(1, 50))
    assert decoder.feed(plain.encode()) == [Acks(tuple(range(1, 50)))]
    both = f"ACK\nsubscription:a\n{header}:7\n\n\0\nACK\n{header}:8\nsubscription:a\n\n\0"
    assert decoder.feed(both.encode()) == [Acks((7, 8))]
    other = f"ACK\n{header}:9\nreceipt:1\n\n\0"
    assert decoder.feed(other.encode()) == [Frame("ACK", {header: "9", "receipt": "1"})]
    wrong = "id" if header == "message-id" else "message-id"
    assert decoder.feed(f"ACK\n{wrong}:9\n\n\0".encode()) == [Frame("ACK", {wrong: "9"})]


def test_items_that_were_not_asked_for_wait() -> None:
    decoder = connected()
    frames = b"".join(b"BEGIN\ntransaction:%d\n\n\0" % number for number in range(5))
    assert len(decoder.feed(frames, 2 + 2 * FRAME_WORK)) == 2
    assert decoder.waits
    assert len(decoder.feed(b"", 10)) == 3
    assert not decoder.waits


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "is no command"),
        (b"x" * 40, "is no command"),
        (b"MESSAGE\n\n\0", "is no command"),
        (b"SEND\n\nx\0", "SEND has no destination"),
        (b"SEND\ndestination:/nowhere/x\n\nx\0", "is not a valid destination"),
        (b"SEND\ndestination:/queue/\n\nx\0", "is not a valid queue destination"),
        (b"SEND\ndestination:/queue/%FF\n\nx\0", "not UTF-8"),
        (b"SEND\nno colon\n\nx\0", "has no colon"),
        (b"SEND\n:value\n\nx\0", "has no name"),
        (b"SEND\ndestination:/queue/q\ncontent-length:x\n\nx\0", "is no number"),
        (b"SEND\ndestination:/queue/q\ncontent-length:1\n\nxx\0", "no NUL behind"),
        (b"SEND\ndestination:\xff\n\nx\0", "not UTF-8"),
        (b"SEND\0\n\n\0", "ends within its head"),
        (b"CONNECT\n\n\0", "a second CONNECT"),
        (b"SEND\ndestination:/queue/q\ncontent-length:1000001\n\n", "at most"),
        (b"SEND\ndestination:/queue/q\n\n" + b"x" * MOST, "at most"),
        (b"SEND\n" + b"a:b\n" * (HEADERS_MAX + 1) + b"\n\0", "headers"),
        (b"SEND\na:" + b"b" * HEAD_BYTES_MAX, "head"),
    ],
)
def test_errors_say_what_is_wrong(data: bytes, words: str) -> None:
    decoder = connected()
    (before,) = decoder.feed(b"BEGIN\ntransaction:t\n\n\0")
    assert before == Frame("BEGIN", {"transaction": "t"})
    assert decoder.feed(data) == []
    assert isinstance(decoder.error, StompFault)
    assert words in str(decoder.error)
    assert decoder.feed(OPEN) == []
    assert decoder.buffered_bytes == 0


def test_little_is_kept_before_a_login() -> None:
    decoder = StompDecoder(MOST)
    assert decoder.feed(b"SEND\ndestination:/queue/q\n\nx\0") == []
    assert "before CONNECT" in str(decoder.error)
    decoder = StompDecoder(MOST)
    decoder.feed(b"CONNECT\na:b\n\n" + b"x" * CONNECT_BYTES_MAX)
    assert decoder.error is not None
    assert decoder.error.reason is Reason.PACKET_TOO_LARGE


def test_a_body_without_a_length_is_looked_through_once() -> None:
    decoder = connected()
    assert decoder.feed(b"SEND\ndestination:/queue/q\n\n") == []
    for _ in range(100):
        assert decoder.feed(b"x" * 1000) == []
    (item,) = decoder.feed(b"\0")
    assert isinstance(item, Sent)
    assert item.run.payload(0) == b"x" * 100_000


def test_each_frame_is_looked_through_once() -> None:
    """Heads whose lines end with a carriage return, many in one read. If each looked for the plain form of an empty
    line through all of the read, this would take half an hour."""
    frame = b"BEGIN\r\ntransaction:a\r\n\r\n\0"
    assert len(connected().feed(frame * 150_000)) == 150_000


@pytest.mark.parametrize("parts", [30_000, 101])
def test_a_destination_of_too_many_parts_is_refused_before_it_is_read(parts: int) -> None:
    decoder = connected()
    assert decoder.feed(b"SEND\ndestination:/queue/a" + b",b" * (parts - 1) + b"\n\nx\0") == []
    assert f"has {parts} parts (at most 100)" in str(decoder.error)


def test_large_heads_take_the_time_of_several_items() -> None:
    headers = b"".join(b"%d:\n" % number for number in range(HEADERS_MAX - 10))
    decoder = connected()
    frames = b"".join(b"ABORT\ntransaction:%d\n" % number + headers + b"\n\0" for number in range(100))
    some = decoder.feed(frames, 1000)
    assert 0 < len(some) < 20
    assert decoder.waits
    while decoder.waits:
        some += decoder.feed(b"", 1000)
    assert len(some) == 100


def test_little_is_remembered_of_a_client() -> None:
    """Every connection may make the broker remember so much without being counted to a pool."""
    decoder = connected()
    gc.collect()
    tracemalloc.start()
    try:
        for size in (1, 20, 100, HEADERS_MAX):
            for number in range(300):
                headers = b"".join(b"%x:\n" % (number * size + one) for one in range(size - 1))
                decoder.feed(b"ABORT\ntransaction:%d\n" % number + headers + b"\n\0")
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()
