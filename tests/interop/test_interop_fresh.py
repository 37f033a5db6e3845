"""How old what a slow client reads is, over a real socket, whose buffers hold half a megabyte."""

from __future__ import annotations

import struct
import time
from urllib.parse import quote

import pytest
from bench.wires.packets import encode_publish
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw
from tests.interop.waiting import until

STAMP, MARK = struct.Struct(">d"), b"sent at:"
KEYS, PAYLOAD_BYTES, RECORDS_AT_ONCE = 50, 1000, 200
SAID_MS = 2000
EXACT_S = 1.0


def updates(name: str) -> bytes:
    payload = (MARK + STAMP.pack(time.monotonic())).ljust(PAYLOAD_BYTES, b"x")
    return b"".join(encode_publish(f"{name}/{number % KEYS}", payload) for number in range(RECORDS_AT_ONCE))


@pytest.mark.parametrize("user", [(), (("conflate", "0s"),)], ids=["every record", "conflated"])
def test_a_client_is_told_to_see_what_is_as_old_as_what_it_reads_next(
    broker: BrokerProcess, name: str, user: tuple[tuple[str, str], ...]
) -> None:
    """The lag tells nothing of what was taken by the kernels."""

    def view_age_ms() -> int:
        (row,) = broker.get("/v1/consumers?client=" + quote(f"{name}-out", safe=""))["consumers"]
        return int(row["view_age_ms"])

    with Raw(broker.port, f"{name}-in") as publisher, Raw(broker.port, f"{name}-out") as reader:
        reader.subscribed(f"{name}/#", user=user)
        assert view_age_ms() == 0

        def is_behind() -> bool:
            publisher.sock.sendall(updates(name))
            return view_age_ms() >= SAID_MS

        until(is_behind)
        said = view_age_ms() / 1000
        data = b""
        while len(data) < 2 * PAYLOAD_BYTES:
            data += reader.sock.recv(PAYLOAD_BYTES)
        at = data.index(MARK) + len(MARK)
        age = time.monotonic() - STAMP.unpack_from(data, at)[0]
        assert 0 < said <= age + EXACT_S
