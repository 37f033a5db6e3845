"""Headers of the PROXY protocol, and X-Forwarded-For: whose connection it is."""

from __future__ import annotations

import ipaddress
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.server.connections.proxied import SIGNATURE, BadHeader, Header, client_of, parse


def v2(command: int = 0x21, form: int = 0x11, body: bytes | None = None, more: bytes = b"") -> bytes:
    body = bytes((192, 0, 2, 7, 10, 0, 0, 1)) + struct.pack(">HH", 51_000, 1883) if body is None else body
    return SIGNATURE + bytes((command, form)) + struct.pack(">H", len(body + more)) + body + more


SIX = ipaddress.ip_address("2001:db8::7").packed + ipaddress.ip_address("::1").packed + struct.pack(">HH", 51_000, 1883)
GOOD = [
    (b"PROXY TCP4 192.0.2.7 10.0.0.1 51000 1883\r\n", "192.0.2.7:51000"),
    (b"PROXY TCP6 2001:db8::7 ::1 51000 1883\r\n", "2001:db8::7:51000"),
    (b"PROXY UNKNOWN\r\n", None),
    (b"PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n", None),
    (v2(), "192.0.2.7:51000"),
    (v2(form=0x21, body=SIX), "2001:db8::7:51000"),
    (v2(more=b"\x04\x00\x02hi"), "192.0.2.7:51000"),  # with a TLV behind the addresses
    (v2(command=0x20), None),
    (v2(command=0x20, form=0, body=b""), None),
    (v2(form=0, body=b""), None),
]
BAD = [
    b"\x10\x0f\x00\x04MQTT",
    b"GET / HTTP/1.1\r\n",
    b"PROXY\r\n",
    b"PROXX TCP4",
    b"PROXY TCP4 192.0.2.7 10.0.0.1 51000\r\n",
    b"PROXY TCP4 192.0.2.7 10.0.0.1 51000 1883 x\r\n",
    b"PROXY TCP4 2001:db8::7 ::1 51000 1883\r\n",
    b"PROXY TCP6 192.0.2.7 10.0.0.1 51000 1883\r\n",
    b"PROXY TCP4 192.0.2.700 10.0.0.1 51000 1883\r\n",
    b"PROXY TCP4 192.0.2.7 10.0.0.1 -1 1883\r\n",
    b"PROXY TCP4 192.0.2.7 10.0.0.1 65536 1883\r\n",
    b"PROXY TCP4 192.0.2.7 10.0.0.1 51000 x\r\n",
    b"PROXY TCP6 fe80::1%eth0 ::1 51000 1883\r\n",
    b"PROXY UDP4 192.0.2.7 10.0.0.1 51000 1883\r\n",
    b"PROXY " + b"x" * 200,
    b"PROXY UNKNOWN " + b"x" * 200 + b"\r\n",
    SIGNATURE + b"\x11\x11\x00\x0c" + bytes(12),
    SIGNATURE + b"\x22\x11\x00\x0c" + bytes(12),
    v2(form=0x12),
    v2(form=0x31, body=bytes(216)),
    v2(body=bytes(8)),
    v2(form=0x21, body=bytes(12)),
    SIGNATURE + b"\x21\x11\xff\xff",
]


@pytest.mark.parametrize(("data", "address"), GOOD)
def test_a_header_says_whose_connection_it_is(data: bytes, address: str | None) -> None:
    for end in range(len(data)):
        assert parse(data[:end]) is None, "it is not whole"
    assert parse(data) == Header(len(data), address)
    assert parse(data + b"\x10what follows\r\n") == Header(len(data), address), "and nothing behind it is read"


@pytest.mark.parametrize("data", BAD)
def test_a_bad_header_is_refused(data: bytes) -> None:
    with pytest.raises(BadHeader):
        parse(data)


@given(st.binary(max_size=300), st.sampled_from([b"", b"PROXY ", b"PROXY TCP4 ", SIGNATURE, SIGNATURE + b"\x21\x11"]))
def test_no_bytes_do_more_than_be_refused(data: bytes, first: bytes) -> None:
    try:
        header = parse(first + data)
    except BadHeader:
        return
    assert header is None or header.size_bytes <= len(first + data)


TRUSTED = (ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("::1"))


@pytest.mark.parametrize(
    ("forwarded", "peer", "client"),
    [
        (["203.0.113.9"], "10.0.0.1", "203.0.113.9"),
        (["203.0.113.9", "10.0.0.2"], "10.0.0.1", "203.0.113.9"),
        (["1.2.3.4", "203.0.113.9"], "10.0.0.1", "203.0.113.9"),  # what the client wrote itself
        (["203.0.113.9"], "192.0.2.1", "192.0.2.1"),  # no trusted proxy
        (["203.0.113.9"], "::1", "203.0.113.9"),
        (["203.0.113.9"], "::ffff:10.0.0.1", "203.0.113.9"),
        (["[2001:db8::1]"], "10.0.0.1", "2001:db8::1"),
        (["not an address"], "10.0.0.1", "10.0.0.1"),
        (["203.0.113.9", "unknown"], "10.0.0.1", "10.0.0.1"),
        ([], "10.0.0.1", "10.0.0.1"),
        (["10.0.0.3"], "10.0.0.1", "10.0.0.3"),
    ],
)
def test_forwarded_for_counts_as_far_as_proxies_are_trusted(forwarded: list[str], peer: str, client: str) -> None:
    assert client_of(forwarded, peer, TRUSTED) == client
