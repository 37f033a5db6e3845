"""A WebSocket stream over a kernel that takes as little as it likes: the client reads the same bytes as without one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from bench.wires.websocket import CLOSE, PING, PONG, TEXT, frame, request
from hypothesis import given
from hypothesis import strategies as st
from tests.server.websocket_stage import FILLER, RULES, House, Kernel, Loop, frames, offer, opened, read

from headway.core.base import Reason
from headway.server.protocols import PROTOCOLS
from headway.server.transport import Buffer, StreamError
from headway.server.websocket import WebSocketStream
from headway.server.websocket.decoder import FRAMES_MAX
from headway.server.websocket.stream import FRAME_BYTES, SLOW_FRAME_BYTES

# -- out --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("room", "small"), [(10_000, True), (0.9 * FRAME_BYTES, False)])
def test_small_frames_are_for_those_who_take_little_at_a_time(room: float, small: bool) -> None:
    stream, kernel = opened(int(room))
    data = bytes(3 * FRAME_BYTES)
    taken = offer(stream, [data])
    assert 0 < taken < FRAME_BYTES, "the frame is not whole"
    kernel.room = FRAME_BYTES
    offer(stream, [data[taken:]])
    kernel.room = 1 << 40
    stream.complete()
    assert (max(frames(kernel).sizes[1:]) <= SLOW_FRAME_BYTES) is small


def test_who_takes_all_at_once_is_sent_all_at_once() -> None:
    """More than the kernel has room for by its own account, as it sends while it takes."""
    stream, kernel = opened()
    data = bytes(range(256)) * 4096
    for views in ([data], [data[:1], data[1:70_000], data[70_000:]], [data] * 3):
        whole = b"".join(views)
        kernel.wire = b""
        assert offer(stream, views) == len(whole)
        assert frames(kernel).payload == whole


@given(
    st.lists(st.lists(st.integers(0, 2 * FRAME_BYTES), min_size=1, max_size=3), min_size=1, max_size=4),
    st.lists(st.integers(0, 40_000), max_size=30),
    st.lists(st.sampled_from(["pieces", "send", "ping"]), min_size=1, max_size=8),
)
def test_the_client_reads_the_bytes_that_were_taken(
    offers: list[list[int]], rooms: list[int], ways: list[str]
) -> None:
    """However little the kernel takes at a time: headers and payload alike are cut anywhere."""
    stream, kernel = opened(0)
    taken, made, number = b"", 0, 0
    for sizes in offers:
        views = [bytes((number + i) % 251 for i in range(size)) for size in sizes]
        number += 7
        whole = b"".join(views)
        while whole:
            kernel.room = rooms.pop() if rooms else 1 << 40
            way = ways[made % len(ways)]
            made += 1
            if way == "ping":
                kernel.incoming.append(frame(b"%d" % made, PING))
                assert read(stream, kernel) == b""
            if stream.unsent:
                stream.flush()
                if stream.unsent:
                    continue
            count = stream.send_pieces(whole, 1024) if way == "pieces" else offer(stream, [whole[:5], whole[5:]])
            assert 0 <= count <= len(whole)
            taken += whole[:count]
            whole = whole[count:]
            assert stream.acknowledged(len(kernel.wire) + answer_bytes(stream)) <= len(taken)
    kernel.room = 1 << 40
    stream.flush()
    stream.complete()
    seen = frames(kernel)
    assert seen.payload[: len(taken)] == taken
    filler = seen.payload[len(taken) :]
    assert filler == FILLER * (len(filler) // 2)
    assert len(filler) <= FRAME_BYTES + 1
    assert max(seen.sizes, default=0) <= FRAME_BYTES
    assert all(opcode == PONG for opcode, _ in seen.control)


def answer_bytes(stream: WebSocketStream) -> int:
    """The bytes of the handshake's answer, which were on the wire before the tests began to look."""
    return len(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
               b"Sec-WebSocket-Accept: \r\nSec-WebSocket-Protocol: mqtt\r\n\r\n") + 28  # fmt: skip


def test_a_lane_is_sent_as_it_is_with_a_header_before_it() -> None:
    stream, kernel = opened()
    sent: list[Sequence[Buffer]] = []
    kernel.send = lambda views: sent.append(views) or sum(map(len, views))  # type: ignore[method-assign]
    lane = memoryview(bytearray(b"x" * 1000))
    assert stream.send([lane]) == 1000
    assert sent[0][0] == b"\x82\x7e\x03\xe8"
    assert sent[0][1] is lane


def test_a_half_sent_frame_is_filled_with_what_comes_next() -> None:
    stream, kernel = opened(4 + 300)
    assert stream.send([b"a" * 1000]) == 300
    kernel.room = 1 << 40
    assert stream.send([b"b" * 500]) == 500  # the cursor has moved: these are other records
    assert frames(kernel).payload == b""
    assert stream.send([b"c" * 300]) == 300
    assert frames(kernel).payload == b"a" * 300 + b"b" * 500 + b"c" * 300
    assert frames(kernel).sizes == [1000, 100]


@pytest.mark.parametrize("owed", [1, 2, 699, 700])
def test_a_half_sent_frame_is_completed_where_nothing_comes_next(owed: int) -> None:
    stream, kernel = opened(4 + 700 - owed)
    assert stream.send([b"a" * 700]) == 700 - owed
    kernel.room = 1 << 40
    stream.complete()
    assert not stream.unsent
    seen = frames(kernel)
    assert seen.payload == b"a" * (700 - owed) + FILLER * ((owed + 1) // 2)
    stream.complete()
    assert frames(kernel).sizes == seen.sizes, "nothing is owed any more"


@pytest.mark.parametrize("taken", [0, 1, 3, 4, 5, 300, 304])
@pytest.mark.parametrize("words", [(), (b"rest", b"", b"out", b"last word"), (b"r" * 5000, b"", b"", b"last")])
def test_last_words_complete_the_frame_and_say_why(taken: int, words: tuple[bytes, ...]) -> None:
    stream, kernel = opened(taken)
    count = offer(stream, [b"a" * 300])
    stream.leaving(Reason.LAG_BYTES, "too slow: " + "ü" * 100)
    words = words or (b"", b"", b"", b"")
    kernel.wire += b"".join(stream.last_words(words))
    seen = frames(kernel)
    assert seen.closed is not None
    assert seen.closed == (1013, "too slow: " + "ü" * 56)
    head = b"a" * count + b"".join(words[:-1])
    assert seen.payload.startswith(head)
    assert seen.payload.endswith(words[-1])
    filler = seen.payload[len(head) : len(seen.payload) - len(words[-1])]
    assert filler == FILLER * (len(filler) // 2)


def test_a_stream_that_is_closed_in_the_middle_of_a_frame_says_nothing_more() -> None:
    """The rest of a record is missing, and filler in it would be part of it."""
    stream, kernel = opened(100)
    stream.send([b"a" * 300])
    kernel.room = 1 << 40
    before = kernel.wire
    stream.leaving(Reason.NORMAL, "")
    stream.close()
    assert kernel.wire == before
    assert kernel.ended


def test_a_stream_that_is_closed_between_frames_says_so() -> None:
    stream, kernel = opened()
    stream.leaving(Reason.SHUTDOWN, "the server is shutting down")
    stream.close()
    assert frames(kernel).closed == (1001, "the server is shutting down")


def test_a_ping_is_answered_between_frames_and_only_the_last_one() -> None:
    stream, kernel = opened(4 + 100)
    stream.send([b"a" * 300])
    kernel.incoming = [frame(b"%d" % i, PING) for i in range(1000)]
    assert read(stream, kernel) == b""
    assert not stream.unsent
    kernel.room = 1 << 40
    assert stream.send([b"a" * 200]) == 200
    seen = frames(kernel)
    assert seen.payload == b"a" * 300
    assert seen.control == [(PONG, b"999")]


def test_a_pong_for_which_there_is_no_room_waits_for_the_socket() -> None:
    stream, kernel = opened(1)
    kernel.incoming = [frame(b"hello", PING), frame(b"again", PING)]
    assert read(stream, kernel) == b""
    assert stream.unsent
    with pytest.raises(BlockingIOError):
        stream.send([b"x"])
    kernel.room = 1 << 40
    assert stream.flush()
    assert not stream.unsent
    assert frames(kernel).control == [(PONG, b"hello"), (PONG, b"again")]


def test_a_part_of_a_file_is_read_and_framed(tmp_path: Path) -> None:
    path = tmp_path / "spill"
    path.write_bytes(b"0123456789" * 10_000)

    class Handle:
        def read(self, start: int, stop: int) -> bytes:
            return path.read_bytes()[start:stop]

    stream, kernel = opened()
    assert stream.send_file(Handle(), 10, 50_000) == 50_000  # type: ignore[arg-type]
    assert frames(kernel).payload == b"0123456789" * 5000


# -- in ---------------------------------------------------------------------------------------------------------------


def test_what_comes_right_behind_the_handshake_is_read() -> None:
    stream, kernel = opened(behind=frame(b"CONNECT"))
    assert stream.pending
    assert read(stream, kernel) == b"CONNECT"
    assert not stream.pending


def test_payload_is_passed_on_before_its_frame_is_whole() -> None:
    stream, kernel = opened()
    data = frame(b"x" * 100_000)
    for part in (data[:60_000], data[60_000:60_001], data[60_001:]):
        kernel.incoming = [part]
        got = read(stream, kernel)
        assert len(got) >= len(part) - 14
    assert stream.held_bytes == 0


def test_very_many_frames_of_one_read_take_turns_and_are_counted() -> None:
    stream, kernel = opened()
    kernel.incoming = [frame(b"x") * (3 * FRAMES_MAX + 1)]
    assert stream.receive(1 << 20) == b"x" * FRAMES_MAX
    assert stream.pending
    assert stream.held_bytes == (2 * FRAMES_MAX + 1) * 7
    assert stream.receive(1 << 20) == b"x" * FRAMES_MAX
    kernel.incoming = [frame(b"y")]
    assert read(stream, kernel) == b"x" * (FRAMES_MAX + 1) + b"y"
    assert not stream.pending
    assert stream.held_bytes == 0


def test_frames_without_payload_take_turns_too() -> None:
    stream, kernel = opened()
    kernel.incoming = [frame(b"") * (2 * FRAMES_MAX) + frame(b"x")]
    for _ in range(2):
        with pytest.raises(BlockingIOError):
            stream.receive(1 << 20)
        assert stream.pending
    assert stream.receive(1 << 20) == b"x"


def test_a_client_that_closes_is_read_to_its_end_and_answered() -> None:
    stream, kernel = opened()
    kernel.incoming = [frame(b"DISCONNECT") + frame(b"\x03\xe9bye", CLOSE) + frame(b"more")]
    assert stream.receive(1 << 20) == b"DISCONNECT"
    assert stream.pending
    with pytest.raises(StreamError, match=r"closed the WebSocket \(1001\): bye") as ended:
        stream.receive(1 << 20)
    assert ended.value.reason is Reason.CLIENT_GONE
    assert not ended.value.polite
    stream.close()
    assert frames(kernel).closed == (1001, "bye")


def test_a_client_that_breaks_the_protocol_can_be_told() -> None:
    stream, kernel = opened()
    kernel.incoming = [frame(b"first") + frame(b"text", TEXT)]
    assert stream.receive(1 << 20) == b"first"
    with pytest.raises(StreamError, match="text message") as ended:
        stream.receive(1 << 20)
    assert ended.value.reason is Reason.PROTOCOL_ERROR
    assert ended.value.polite
    stream.leaving(ended.value.reason, str(ended.value))
    kernel.wire += b"".join(stream.last_words((b"", b"", b"", b"LAST")))
    assert frames(kernel).payload == b"LAST"
    assert frames(kernel).closed == (1003, "a text message came, and only binary ones are taken")


# -- the handshake ----------------------------------------------------------------------------------------------------


def opening(*reads: bytes) -> tuple[WebSocketStream, Kernel, House]:
    kernel, loop, house = Kernel(), Loop(), House()
    stream = WebSocketStream(kernel, RULES, PROTOCOLS, loop)  # type: ignore[arg-type]
    stream.open(house)
    for data in reads:
        kernel.incoming = [data]
        loop.reader()
    return stream, kernel, house


def test_a_handshake_may_come_a_byte_at_a_time() -> None:
    data = request("/", "localhost", "mqtt")[0]
    _, kernel, house = opening(*[data[i : i + 1] for i in range(len(data))])
    assert house.open
    assert kernel.wire.startswith(b"HTTP/1.1 101 ")


def test_a_client_whose_handshake_is_not_whole_in_time_is_answered() -> None:
    stream, kernel, house = opening(b"GET / HTTP/1.1\r\n" + b"X: " + b"y" * 3000)
    assert not house.open
    assert stream.stage == "the WebSocket handshake"
    stream.leaving(Reason.CONNECT_TIMEOUT, "the client did not log in within 10 s")
    stream.close()
    assert kernel.wire.startswith(b"HTTP/1.1 408 Request Timeout\r\n")


def test_a_refusal_is_answered_and_on_record() -> None:
    stream, kernel, house = opening(request("/elsewhere", "localhost", "mqtt")[0])
    ((reason, text),) = house.said
    assert reason is Reason.PROTOCOL_ERROR
    assert text.startswith("the WebSocket handshake was refused (404): there is nothing here")
    stream.leaving(reason, text)
    stream.close()
    assert kernel.wire.startswith(b"HTTP/1.1 404 Not Found\r\n")


def test_a_client_that_leaves_during_the_handshake_is_on_record() -> None:
    _, _, house = opening(b"GET", b"")
    assert house.said == [(Reason.CLIENT_GONE, "the client left during the WebSocket handshake")]


def test_an_answer_for_which_there_is_no_room_waits_for_the_socket() -> None:
    kernel, loop, house = Kernel(10), Loop(), House()
    stream = WebSocketStream(kernel, RULES, PROTOCOLS, loop)  # type: ignore[arg-type]
    stream.open(house)
    kernel.incoming = [request("/mqtt", "localhost", "mqtt")[0]]
    loop.reader()
    assert house.open
    assert stream.unsent
    kernel.room = 1 << 40
    stream.flush()
    assert not stream.unsent
    assert kernel.wire.endswith(b"\r\n\r\n")


