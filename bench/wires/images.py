"""Clients that hold an image of all keys: how each broker keeps the latest record per key, and hands it out.

- Headway: a snapshot with marks; who comes back has ``from``, and gets what has changed.
- Redis: a hash, and pub/sub beside it, by hand: subscribe, read the hash, then apply what was published. Pub/sub
  remembers nothing, so who comes back reads the hash again.
- NATS: a KV bucket (a stream with one message per subject), watched by an ordered consumer without acknowledgements.
  Who comes back starts it behind the last sequence that it saw. The bucket is in memory, as the others' keys are.

All three are read by the same loop, record by record, in Python.
"""

from __future__ import annotations

import json
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

from bench.driver.message import MARK, STAMP
from bench.errors import PeerFailed
from bench.wires.mqtt import Mqtt
from bench.wires.nats import Nats
from bench.wires.packets import encode_publish, encode_subscribe
from bench.wires.resp import Resp, command
from bench.wires.wire import take, take_line

READ_BYTES = 256 * 1024
QUIET_S = 30.0
NUMBER = slice(len(MARK), len(MARK) + STAMP.size)

Found = tuple[str, bytes]
Reading = Callable[[bytes], tuple[list[Found], bytes]]
"""Takes bytes; returns the records that are whole in them, and the rest."""


def number_of(payload: bytes) -> int:
    number: int = STAMP.unpack(payload[NUMBER])[0]
    return number


class Images(ABC):
    """One broker's way. Updates have numbers, from 0; ``last`` is that of the latest."""

    def prepare(self, port: int) -> None:  # noqa: B027  most need nothing
        """Makes what the keys are kept in."""

    @abstractmethod
    def publication(self, key: str, payload: bytes) -> bytes:
        """Returns the bytes that set a key, and tell those who follow."""

    @abstractmethod
    def image(self, port: int, last: int, since: int | None) -> dict[str, bytes]:
        """Connects, and reads until update ``last`` is in. ``since``: what changed behind this number is enough; who
        cannot have only that reads all."""


class HeadwayImages(Images):
    """The offset of update 0 is found in the mark of the first snapshot."""

    def __init__(self) -> None:
        self._offset = ""

    def publication(self, key: str, payload: bytes) -> bytes:
        return encode_publish(f"image/{key}", payload, version=4)

    def image(self, port: int, last: int, since: int | None) -> dict[str, bytes]:
        begun = ("snapshot", "true") if since is None else ("from", self._offset)
        with Mqtt(5).open(port, "image") as sock:
            sock.sendall(encode_subscribe(1, ["image/#"], user=(begun, ("marks", "true"))))
            head = take(sock, 2)
            if take(sock, head[1])[-1] > 2:
                raise PeerFailed("refused the subscription")
            return _read(sock, self._publishes, last)

    def _publishes(self, data: bytes) -> tuple[list[Found], bytes]:
        found, at, size = [], 0, len(data)
        while size - at > 8:
            length, body = _varint(data, at + 1)
            end = body + length
            if end > size:
                break
            topic_end = body + 2 + int.from_bytes(data[body : body + 2], "big")
            properties_bytes, properties = _varint(data, topic_end)
            payload = data[properties + properties_bytes : end]
            if payload:
                found.append((data[body + 8 : topic_end].decode(), payload))
            elif b"snapshot_begin" in data[properties:end]:
                self._offset = _user_property(data[properties:end], b"headway-offset")
            at = end
        return found, data[at:]


class RedisImages(Images):
    def publication(self, key: str, payload: bytes) -> bytes:
        name = key.encode()
        return command(b"HSET", b"image", name, payload) + command(b"PUBLISH", b"image", name + payload)

    def image(self, port: int, last: int, since: int | None) -> dict[str, bytes]:
        wire = Resp()
        with wire.open(port, "follows") as follows, wire.open(port, "image") as sock:
            wire.subscribe(follows, ("image",))
            sock.sendall(command(b"HGETALL", b"image"))
            left = int(take_line(sock)[1:]) // 2
            image: dict[str, bytes] = {}
            for key, payload in _records(sock, _pairs):
                image[key] = payload
                if not (left := left - 1):
                    break
            if max(map(number_of, image.values())) < last:
                image |= _read(follows, _messages, last)
            return image


BUCKET: dict[str, object] = {
    "name": "KV_image", "subjects": ["$KV.image.>"], "max_msgs_per_subject": 1, "storage": "memory",
    "retention": "limits", "discard": "new", "num_replicas": 1, "allow_rollup_hdrs": True, "deny_delete": True,
    "max_consumers": -1, "max_msgs": -1, "max_bytes": -1, "max_age": 0,
}  # fmt: skip


class NatsImages(Images):
    def prepare(self, port: int) -> None:
        with Nats().open(port, "bucket") as sock:
            _asked(sock, "STREAM.CREATE.KV_image", BUCKET)

    def publication(self, key: str, payload: bytes) -> bytes:
        return f"PUB $KV.image.{key} {len(payload)}\r\n".encode() + payload + b"\r\n"

    def image(self, port: int, last: int, since: int | None) -> dict[str, bytes]:
        consumer: dict[str, object] = {
            "deliver_subject": "watch", "ack_policy": "none", "replay_policy": "instant", "max_deliver": 1,
            "mem_storage": True, "deliver_policy": "last_per_subject", "filter_subject": "$KV.image.>",
        }  # fmt: skip
        if since is not None:
            # The first message of a stream has sequence 1.
            consumer |= {"deliver_policy": "by_start_sequence", "opt_start_seq": since + 2}
        with Nats().open(port, "image") as sock:
            sock.sendall(b"SUB watch 2\r\n")
            rest = _asked(sock, "CONSUMER.CREATE.KV_image", {"stream_name": "KV_image", "config": consumer})
            return _read(sock, _deliveries, last, rest)


def _read(sock: socket.socket, reading: Reading, last: int, rest: bytes = b"") -> dict[str, bytes]:
    image: dict[str, bytes] = {}
    for key, payload in _records(sock, reading, rest):
        image[key] = payload
        if number_of(payload) == last:
            break
    return image


def _records(sock: socket.socket, reading: Reading, rest: bytes = b"") -> Iterator[Found]:
    sock.settimeout(QUIET_S)
    while True:
        found, rest = reading(rest)
        yield from found
        try:
            part = sock.recv(READ_BYTES)
        except TimeoutError:
            raise PeerFailed(f"the image is not complete, and nothing came for {QUIET_S:g} s") from None
        if not part:
            raise PeerFailed("closed the connection in the middle of an image")
        rest += part


def _pairs(data: bytes) -> tuple[list[Found], bytes]:
    """Reads keys and values of a hash."""
    found, at = [], 0
    while (key := _bulk(data, at)) and (value := _bulk(data, key[1])):
        found.append((key[0].decode(), value[0]))
        at = value[1]
    return found, data[at:]


def _messages(data: bytes) -> tuple[list[Found], bytes]:
    """Reads what was published: an array of three, of which the last has the key and, from its mark on, the value."""
    found, at = [], 0
    while (word := _bulk(data, at + 4)) and (channel := _bulk(data, word[1])) and (text := _bulk(data, channel[1])):
        key, _, _ = text[0].partition(MARK)
        found.append((key.decode(), text[0][len(key) :]))
        at = text[1]
    return found, data[at:]


def _bulk(data: bytes, at: int) -> tuple[bytes, int] | None:
    """Reads a text with its length before it. Returns where the next begins, too; None: it is not whole."""
    line = data.find(b"\r\n", at)
    if line < 0:
        return None
    end = line + 2 + int(data[at + 1 : line])
    return (data[line + 2 : end], end + 2) if end + 2 <= len(data) else None


def _deliveries(data: bytes) -> tuple[list[Found], bytes]:
    """Reads MSG of NATS, and leaves out all else."""
    found, at = [], 0
    while (line := data.find(b"\r\n", at)) >= 0:
        words = data[at:line].split()
        end = line + 2
        if words[:1] == [b"MSG"]:
            end += int(words[-1])
            if end + 2 > len(data):
                break
            if words[1].startswith(b"$KV.image."):
                found.append((words[1][len(b"$KV.image.") :].decode(), data[line + 2 : end]))
            end += 2
        at = end
    return found, data[at:]


def _asked(sock: socket.socket, what: str, request: dict[str, object]) -> bytes:
    """Asks JetStream. Returns what came behind its answer, or before."""
    body = json.dumps(request).encode()
    sock.sendall(b"SUB answer 1\r\n" + f"PUB $JS.API.{what} answer {len(body)}\r\n".encode() + body + b"\r\n")
    early = b""
    while not (line := take_line(sock)).startswith(b"MSG answer "):
        early += line
        if line.startswith(b"MSG "):
            early += take(sock, int(line.split()[-1]) + 2)
    answer = json.loads(take(sock, int(line.split()[-1]) + 2))
    if "error" in answer:
        raise PeerFailed(f"{what}: {answer['error'].get('description')}")
    return early


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns a length, and where what it is of begins."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _user_property(properties: bytes, name: bytes) -> str:
    at = properties.index(name) + len(name)
    return properties[at + 2 : at + 2 + int.from_bytes(properties[at : at + 2], "big")].decode()


IMAGES: dict[str, type[Images]] = {"headway": HeadwayImages, "redis": RedisImages, "nats": NatsImages}
