"""Deliveries of STOMP: what a consumer gets of a record that any protocol has sent."""

from __future__ import annotations

import re

import pytest

from headway.core.message import EncodedRun, Properties, Run
from headway.wire.codecs import queue_form
from headway.wire.common import Address, CommonProperties
from headway.wire.stomp.envelope import StompEnvelope, common_of
from headway.wire.stomp.versions import V1_0, V1_1, V1_2, Version, unescaped

QUEUES = queue_form()


def lane(*runs: Run) -> EncodedRun:
    """The runs as a lane has them."""
    data, ends = b"", []
    for run in runs:
        encoded = QUEUES.dialect.encode(run, 1)
        ends += [len(data) + end for end in encoded.ends]
        data += encoded.data
    return EncodedRun(data, ends)


def records(bodies: list[bytes], properties: Properties = Properties(), topic: str = "a/b") -> Run:  # noqa: B008
    ends, at = [], 0
    for body in bodies:
        at += len(body)
        ends.append(at)
    return Run(topic, b"".join(bodies), ends, [0, *ends[:-1]], None, 0, False, properties)


def written(envelope: StompEnvelope, encoded: EncodedRun, first_id: int = 1) -> bytes:
    cut = envelope.cut(encoded.data, encoded.ends)
    frames = envelope.write(cut, 0, len(encoded.ends), first_id)
    assert envelope.ends(cut, 0, len(encoded.ends))[-1] == len(frames)
    assert envelope.write(cut, 0, len(encoded.ends), first_id) is frames, "the last bytes are kept"
    return frames


def frames_of(data: bytes, version: Version = V1_2) -> list[tuple[str, dict[str, str], bytes]]:
    found, at = [], 0
    while at < len(data):
        head, _, rest = data[at:].partition(b"\n\n")
        command, *lines = head.decode().split("\n")
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers.setdefault(unescaped(name, version), unescaped(value, version))
        size = int(headers["content-length"])
        assert rest[size] == 0
        found.append((command, headers, rest[:size]))
        at += len(head) + 2 + size + 1
    return found


@pytest.mark.parametrize("acks", [False, True])
@pytest.mark.parametrize("sizes", [[5] * 40, [5, 6, 7] * 20, [0] * 20, [3], [4] * 9 + [5]])
@pytest.mark.parametrize("first_id", [1, 95, 990, 9_985, 99_999_990])
def test_every_delivery_has_its_number(acks: bool, sizes: list[int], first_id: int) -> None:
    bodies = [bytes((65 + number % 26,)) * size for number, size in enumerate(sizes)]
    envelope = StompEnvelope("sub:0", V1_2, acks=acks)
    frames = frames_of(written(envelope, lane(records(bodies)), first_id))
    assert [body for _, _, body in frames] == bodies
    for number, (command, headers, _) in enumerate(frames, first_id):
        assert (command, headers["subscription"], headers["destination"]) == ("MESSAGE", "sub:0", "/topic/a.b")
        assert int(headers["message-id"]) == number
        assert ("ack" in headers) == acks
        assert int(headers.get("ack", number)) == number


def test_records_of_several_topics_and_properties_in_one_cut() -> None:
    typed = QUEUES.write_common(CommonProperties(headers={"n": 7, "yes": True, "x": 0.5, "list": [1]}))
    encoded = lane(records([b"a"] * 9), records([b"b"] * 9, typed, "c"))
    frames = frames_of(written(StompEnvelope("1", V1_2, acks=False), encoded))
    assert [headers["destination"] for _, headers, _ in frames] == ["/topic/a.b"] * 9 + ["/topic/c"] * 9
    assert {name: frames[9][1].get(name) for name in ("n", "yes", "x", "list")} == {
        "n": "7", "yes": "true", "x": "0.5", "list": None,
    }  # fmt: skip


SENT = {
    "destination": "/queue/q", "content-type": "text/plain", "correlation-id": "c", "reply-to": "/queue/r",
    "amqp-message-id": "m", "timestamp": "1700000000123", "type": "order", "priority": "7", "persistent": "true",
    "expires": "1700000060123", "user-id": "ann", "own": "a:b\\c\nd", "content-length": "3", "receipt": "1",
}  # fmt: skip


def test_headers_of_a_send_come_back_in_a_message() -> None:
    common = common_of(SENT, Address("r"), 1_700_000_000_123)
    assert (common.expiration_ms, common.priority, common.persistent) == (60_000, 7, True)
    run = records([b"abc"], QUEUES.write_common(common), "q")
    run.exchange = ""
    ((_, headers, _),) = frames_of(written(StompEnvelope("1", V1_2, acks=True), lane(run)))
    expected = {name: value for name, value in SENT.items() if name != "receipt"} | {
        "subscription": "1", "message-id": "1".zfill(15), "ack": "1".zfill(15), "redelivered": "false",
        "expiration": "60000",
    }  # fmt: skip
    assert headers == expected


@pytest.mark.parametrize(("version", "raw"), [(V1_0, b"a:b\\ c"), (V1_1, b"a\\cb\\\\\\nc"), (V1_2, b"a\\cb\\\\\\nc")])
def test_headers_are_escaped_as_the_version_has_it(version: Version, raw: bytes) -> None:
    properties = QUEUES.write_common(CommonProperties(headers={"own": "a:b\\\nc"}))
    frames = written(StompEnvelope(None, version, acks=False, queue=False), lane(records([b"x"], properties)))
    assert b"\nown:" + raw + b"\n" in frames
    assert not re.search(rb"subscription|redelivered", frames)
