"""No input gives anything but items and one clean protocol error, however it is cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.wire.openwire_frames import CACHED, consumer_id, message, queue, topic, wire_format
from tests.wire.test_openwire_decoder import PROPERTIES, TABLE, TEXT

from headway.core.base import ProtocolError
from headway.wire.openwire.decoder import OpenWireDecoder
from headway.wire.openwire.maps import read_headers, write_headers

SEEDS = [data for data, _ in TABLE] + [message(kind, to, TEXT, PROPERTIES) for kind in (24, 28) for to in (
    queue("q"), topic("t"))]  # fmt: skip
FIRST = [wire_format(), wire_format(known=CACHED)]


def fed(data: bytes, cuts: list[int]) -> tuple[list[object], str]:
    decoder = OpenWireDecoder(100_000)
    items: list[object] = []
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    for start, end in pairwise(places):
        failed = decoder.error is not None
        got = decoder.feed(data[start:end])
        assert not (failed and got)
        items += got
    assert decoder.buffered_bytes <= len(data)
    return items, str(decoder.error)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(FIRST), st.binary(max_size=200), st.lists(st.integers(0, 300), max_size=4))
def test_any_bytes(first: bytes, data: bytes, cuts: list[int]) -> None:
    assert fed(first + data, cuts) == fed(first + data, [])
    assert fed(data, cuts) == fed(data, [])


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_frames_with_some_bytes_changed(data: st.DataObject) -> None:
    first = data.draw(st.sampled_from(FIRST))
    raw = bytearray(b"".join(data.draw(st.lists(st.sampled_from(SEEDS), min_size=1, max_size=3))))
    for _ in range(data.draw(st.integers(0, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    whole = first + bytes(raw)
    assert fed(whole, data.draw(st.lists(st.integers(0, len(whole)), max_size=4))) == fed(whole, [])


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.text(max_size=5), st.one_of(
    st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.text(max_size=9), st.none(),
), max_size=4))  # fmt: skip
def test_properties_are_the_same_after_they_were_written_and_read(headers: dict[str, object]) -> None:
    raw = write_headers(headers)
    if raw is None:
        assert not headers
    elif "\0" not in "".join(map(str, headers.values())) and all(str(v).isprintable() for v in headers.values()):
        assert dict(read_headers(raw)) == headers


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60))
def test_any_properties(raw: bytes) -> None:
    try:
        write_headers(read_headers(raw))
    except ProtocolError:
        return


@pytest.mark.parametrize("depth", [100, 5000])
def test_deep_nesting_is_refused(depth: int) -> None:
    nested = b"\0\0\0\1\0\1a\x0b" * depth + b"\0\0\0\0"
    with pytest.raises(ProtocolError, match="deep"):
        read_headers(nested)
    assert consumer_id()
