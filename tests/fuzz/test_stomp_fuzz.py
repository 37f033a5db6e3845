"""Any bytes give only items and one error, however they are cut."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from headway.wire.stomp.decoder import StompDecoder
from headway.wire.stomp.versions import Acks, Item, Sent, StompFault

MOST = 100_000
PIECES = st.sampled_from([
    b"CONNECT\naccept-version:1.2\n\n\0", b"SEND\n", b"SUBSCRIBE\n", b"ACK\n", b"destination:/queue/a\n",
    b"destination:/topic/a,/queue/b\n", b"content-length:3\n", b"content-length:99999999\n", b"receipt:1\n", b"\n",
    b"\0", b"\r\n", b"\\", b":", b"abc", b"id:\\c\n", b"\xff", b"MESSAGE\n\n\0",
    b"ACK\nid:1\n\n\0", b"ACK\nid:2\nsubscription:a\n\n\0\n",
    b"SEND\ndestination:/queue/a\ncontent-length:3\n\nabc\0", b"SEND\ndestination:/queue/a\n\nabc\0",
])  # fmt: skip
BYTES = st.lists(PIECES | st.binary(max_size=20), max_size=40).map(b"".join)


def seen(items: list[Item]) -> list[object]:
    found: list[object] = []
    for item in items:
        if isinstance(item, Sent):
            assert len(item.run.bodies) == len(item.run.ends) > 0
            assert item.run.ends[-1] == len(item.run.data)
            found += [(item.headers, item.run.payload(number)) for number in range(len(item.run))]
        elif isinstance(item, Acks):
            found += item.ids
        else:
            found.append(item)
    return found


@settings(deadline=None)  # it would measure the machine
@given(BYTES, st.integers(1, 50), st.booleans())
@example(b"\0\n" * 30, 1, True)
def test_any_bytes_give_items_and_one_error(data: bytes, size: int, connected: bool) -> None:
    data = (b"CONNECT\n\n\0" if connected else b"") + data
    whole, cut = StompDecoder(MOST), StompDecoder(MOST)
    expected, found = seen(whole.feed(data)), []
    for at in range(0, len(data), size):
        found += seen(cut.feed(data[at : at + size]))
        assert cut.buffered_bytes <= at + size
    assert found == expected
    assert (whole.error is None) == (cut.error is None)
    assert whole.error is None or isinstance(whole.error, StompFault)


@settings(deadline=None)  # it would measure the machine
@given(BYTES, st.integers(1, 3))
def test_items_that_wait_are_the_same(data: bytes, most: int) -> None:
    data = b"CONNECT\n\n\0" + data
    whole, slow = StompDecoder(MOST), StompDecoder(MOST)
    expected = seen(whole.feed(data))
    found = seen(slow.feed(data, most))
    while slow.waits:
        found += seen(slow.feed(b"", most))
    assert found == expected
