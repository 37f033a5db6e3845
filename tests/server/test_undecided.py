"""Which protocol a connection speaks, where there are several."""

from __future__ import annotations

from typing import Any

import pytest

from headway.core.base import ProtocolError
from headway.server.peers import Choice
from headway.server.peers.undecided import FIRST_BYTES_MAX
from headway.server.protocols import PROTOCOLS, SCHEMES
from headway.wire.codec import Codec

FIRST = {
    "mqtt": b"\x10\x0e\x00\x04MQTT", "amqp": b"AMQP\x00\x00\x09\x01", "stomp": b"CONNECT\naccept-version:1.2\n\n\0",
}  # fmt: skip
"""First bytes of clients, by protocol."""


def never(name: str, connection: Any) -> Any:
    raise AssertionError(name)


def choice(owner: str = "", codecs: dict[str, Codec] | None = None) -> Choice:
    return Choice(codecs or PROTOCOLS, owner, never)


@pytest.mark.parametrize("name", FIRST)
def test_the_first_bytes_tell(name: str) -> None:
    first = FIRST[name]
    told = [choice().of(first[:size]) for size in range(1, len(first) + 1)]
    known = told.index(name)
    assert told == [None] * known + [name] * (len(first) - known), "never another one's, and soon its own"


def test_no_codec_takes_anothers_first_bytes() -> None:
    for name, first in FIRST.items():
        assert [one for one, codec in PROTOCOLS.items() if codec.opens(first)] == [name]


def test_first_bytes_of_nobody() -> None:
    with pytest.raises(ProtocolError, match=r"the first bytes, 'GET / HTTP.*, are of no protocol .*mqtt"):
        choice().of(b"GET / HTTP/1.1\r\n\r\n")
    assert choice("amqp").of(b"GET / HTTP/1.1\r\n\r\n") == "amqp", "it has an answer of its own"


def test_nothing_is_kept_for_long() -> None:
    patient = PROTOCOLS["mqtt"]._replace(opens=lambda data: None)
    assert choice(codecs={"mqtt": patient}).of(b"x" * FIRST_BYTES_MAX) is None
    with pytest.raises(ProtocolError):
        choice(codecs={"mqtt": patient}).of(b"x" * (FIRST_BYTES_MAX + 1))


def test_schemes() -> None:
    assert set(SCHEMES["auto"].protocols) == set(PROTOCOLS)
    assert SCHEMES["autos"].tls
    for name, codec in PROTOCOLS.items():
        scheme = SCHEMES[codec.scheme or name]
        assert name in scheme.protocols
        assert scheme.owner == (codec.scheme or name)
