"""Connections of the set's consumers, with their handshakes. Blocking: called in a thread."""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

from bench.errors import PeerFailed
from bench.wires.amqp import FRAME_MAX_BYTES, expect, long_string, method, short_string, table
from bench.wires.packets import encode_connect, encode_subscribe
from bench.wires.wire import ANSWER_S, HOST, take
from headway.wire.amqp.primitives import write_table
from headway.wire.mqtt.packets import Connect, TopicRequest

DECLARE_TRANSIENT = 0
NO_ACK, NO_WAIT = 2, 8


class Work(NamedTuple):
    """One consumer of a queue, on a channel of its own."""

    queue: str
    key: str
    prefetch: int
    no_ack: bool = False


def dial(port: int, receive_buffer: int | None) -> socket.socket:
    sock = socket.socket()
    if receive_buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.settimeout(ANSWER_S)
    sock.connect((HOST, port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def connect_mqtt(
    port: int, client: str, *, version: int = 5, window: int = 65_535, expiry_s: int = 0, fresh: bool = True,
    receive_buffer: int | None = None,
) -> socket.socket:  # fmt: skip
    sock = dial(port, receive_buffer)
    handshake_mqtt(sock, client, version=version, window=window, expiry_s=expiry_s, fresh=fresh)
    return sock


def handshake_mqtt(
    sock: socket.socket, client: str, *, version: int = 5, window: int = 65_535, expiry_s: int = 0, fresh: bool = True
) -> None:
    wish = Connect(version, client, fresh, session_expiry_s=expiry_s, receive_max=window)
    sock.sendall(encode_connect(wish))
    answer = take(sock, take(sock, 2)[1])
    if answer[1] != 0:
        raise PeerFailed(f"CONNACK says {answer[1]:#04x}")


def subscribe_mqtt(
    sock: socket.socket, filter: str, *, version: int = 5, qos: int = 0, conflate: str | None = None
) -> None:
    user = () if conflate is None else (("conflate", conflate),)
    sock.sendall(encode_subscribe(1, [TopicRequest(filter, qos)], version=version, user=user))
    answer = take(sock, take(sock, 2)[1])
    if answer[-1] > 2:
        raise PeerFailed(f"SUBACK says {answer[-1]:#04x}")


def connect_amqp(port: int, client: str, receive_buffer: int | None = None) -> socket.socket:
    sock = dial(port, receive_buffer)
    sock.sendall(b"AMQP\x00\x00\x09\x01")
    expect(sock, 10, 10)
    about = write_table({"connection_name": client})
    login = short_string("PLAIN") + long_string(b"\x00guest\x00guest") + short_string("en_US")
    sock.sendall(method(0, 10, 11, about + login))
    expect(sock, 10, 30)
    sock.sendall(method(0, 10, 31, struct.pack(">HIH", 0, FRAME_MAX_BYTES, 0)))
    sock.sendall(method(0, 10, 40, short_string("/") + b"\x00\x00"))
    expect(sock, 10, 41)
    return sock


def open_channel(sock: socket.socket, channel: int) -> None:
    sock.sendall(method(channel, 20, 10, b"\x00"))
    expect(sock, 20, 11)


def declare(sock: socket.socket, channel: int, queue: str, key: str) -> None:
    """A queue that outlives its consumers, bound to the topics of this key."""
    sock.sendall(method(channel, 50, 10, b"\x00\x00" + short_string(queue) + bytes((DECLARE_TRANSIENT,)) + table()))
    expect(sock, 50, 11)
    names = short_string(queue) + short_string("amq.topic") + short_string(key)
    sock.sendall(method(channel, 50, 20, b"\x00\x00" + names + b"\x00" + table()))
    expect(sock, 50, 21)


def connect_workers(port: int, client: str, works: list[Work], receive_buffer: int | None = None) -> socket.socket:
    """One connection, a channel for each of ``works``, numbered from 1."""
    sock = connect_amqp(port, client, receive_buffer)
    for channel, work in enumerate(works, 1):
        open_channel(sock, channel)
        declare(sock, channel, work.queue, work.key)
    for channel, work in enumerate(works, 1):
        sock.sendall(method(channel, 60, 10, struct.pack(">IHB", 0, work.prefetch, 0)))
        expect(sock, 60, 11)
    for channel, work in enumerate(works, 1):
        flags = NO_WAIT | (NO_ACK if work.no_ack else 0)
        names = short_string(work.queue) + short_string(f"c{channel}")
        sock.sendall(method(channel, 60, 20, b"\x00\x00" + names + bytes((flags,)) + table()))
    return sock
