"""Hostile clients: what each protocol can carry that takes long to read, to explain, to compile or to look through,
before a login and after one. A canary sings beside each kind.

A kind is a row of ``KINDS``: what its clients say once when they have come, and what they say again and again, of sizes
that are drawn at random up to a limit. ``HEADWAY_SEED`` repeats a run. Some kinds by hand:
``python -m tests.soak.hostile [WORD ...]`` runs those with a word in their names.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import threading
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from io import BytesIO
from itertools import count, cycle, product
from pathlib import Path
from random import Random
from select import select
from struct import pack
from typing import NamedTuple
from urllib.parse import quote

from bench.wires.packets import connect, encode_publish, encode_subscribe, encode_unsubscribe
from pamqp.commands import Channel, Connection
from pamqp.frame import marshal
from tests.interop.process import BrokerProcess
from tests.soak.part import Part, Row
from tests.soak.worlds import LONGEST_MS_MAX, P99_MS_MAX, RSS_BEYOND_POOL_BYTES_MAX, Setting, beside, held
from tests.wire import openwire_frames as jms

from headway.core.message.record import Properties
from headway.wire.amqp.primitives import write_long, write_short, write_table
from headway.wire.amqp1 import values as writing
from headway.wire.amqp1.performatives import Attach, Begin, Detach, Flow, Open, Source, Target
from headway.wire.amqp1.replies import frame as amqp1_frame
from headway.wire.amqp1.replies import write as amqp1
from headway.wire.mqtt.packets import Connect, TopicRequest, WillMessage, encode_connect
from headway.wire.mqtt.primitives import write_frame
from headway.wire.mqtt.properties import Fields, write_properties, write_user

CONFIG = """
[listeners.stomp]
url = "stomp://127.0.0.1:0"
[listeners.openwire]
url = "openwire://127.0.0.1:0"
[listeners.ws]
url = "ws://127.0.0.1:0"
[[topic]]
filter = "keyed/#"
key = "/id"
[[topic]]
filter = "recorded/#"
keep = "10MB"
"""
ATTACKERS = 2
"""Clients of a kind at a time."""
ROUNDS, ROUNDS_BYTES = 64, 32_000_000
"""What is drawn for each attacker, and then said again and again."""
SECONDS = 4.0
KB, MB = 1000, 1_000_000
OPTIONS = ("selector", "conflate", "snapshot", "out_of_focus", "patience", "order_by", "group_by", "offsets")
Say = Callable[[Random, int], bytes]


class Kind(NamedTuple):
    """``say`` returns what is said in one round, of about so many bytes; ``begin`` what is said once before that.
    ``login``: whether the clients log in first; others leave after each round."""

    protocol: str
    name: str
    bytes_max: int
    say: Say
    begin: bytes = b""
    login: bool = True

    @property
    def title(self) -> str:
        return f"{self.protocol}: {self.name}" + ("" if self.login or self.protocol == "http" else ", before login")


# -- what is said -----------------------------------------------------------------------------------------------------


def unknown(rng: Random, size: int, each: int = 5) -> list[tuple[str, str]]:
    """Names that mean nothing."""
    return [(f"{rng.randrange(16**5):05x}", "") for _ in range(max(1, size // (5 + each)))]


def slips(rng: Random, size: int, each: int = 5) -> list[tuple[str, str]]:
    """Names that resemble those of options, but not closely enough to be suggestions."""

    def slip(name: str) -> str:
        letters = list(name)
        rng.shuffle(letters)
        return "".join(letters) + rng.choice("xyz")

    return [(slip(rng.choice(OPTIONS)), "1") for _ in range(max(1, size // (9 + each)))]


def nested(rng: Random, size: int) -> str:
    depth = size // 2
    return rng.choice(("[" * depth + "]" * depth, '{"a":' * (size // 6) + "1" + "}" * (size // 6)))


def selector(rng: Random, size: int) -> str:
    """Conditions that take long to parse, to compile or to look at."""
    number = rng.randrange(10**9)
    kinds = (
        lambda: "/*a" * (size // 3),
        lambda: "(" * (size // 2) + f"a = {number}" + ")" * (size // 2),
        lambda: f"a IN ({','.join(repr(str(rng.randrange(10**6))) for _ in range(size // 9))})",
        lambda: " OR ".join(f"a{rng.randrange(10**6)} = {at}" for at in range(size // 20 + 1)),
        lambda: f"a LIKE '{'%a' * (size // 2)}b'",
        lambda: f"a = {'-' * size}{number}",
        lambda: f"a = {'9' * size}",
        lambda: "NOT " * (size // 4) + f"a = {number}",
        lambda: "+".join("1" for _ in range(size // 2)) + f" = {number}",
        lambda: "'" * size,
        lambda: f"\"/{'a/' * (size // 2)}\" = {number}",
    )
    return rng.choice(kinds)()


WILD = ["/".join(levels) for levels in product("a+", repeat=13)]
numbers = count()


def fresh(rng: Random, size: int) -> str:
    """A topic that was never there, with many levels or few."""
    return f"{next(numbers)}{rng.randrange(10**9)}/" + rng.choice(("a/", "aaaaaaa", "+a/"))[0] * max(1, size)


def levels(rng: Random, size: int) -> str:
    return f"{next(numbers)}" + rng.choice(("/a", "/")) * (size // 2)


# MQTT


def m_subscribe(rng: Random, size: int, names: Callable[..., list[tuple[str, str]]], filters: int = 1) -> bytes:
    asked = [TopicRequest(f"{next(numbers)}", 0) for _ in range(filters)]
    return encode_subscribe(1, asked, user=tuple(names(rng, size)))


def m_filters(rng: Random, size: int) -> bytes:
    """Half of it names options, for each of the filters in the other half."""
    return m_subscribe(rng, size // 2, rng.choice((unknown, slips)), filters=size // 20 + 1)


def m_deep(rng: Random, size: int) -> bytes:
    each = min(size, 65_000)
    text = "/".join(rng.choice("a+") for _ in range(each // 2))
    return encode_subscribe(1, [TopicRequest(f"{text}/{at}/#", 0) for at in range(size // each)])


def m_options(rng: Random, size: int, name: str, *more: tuple[str, str]) -> bytes:
    texts = {
        "selector": selector,
        "key": lambda rng, size: "/a" * (size // 2),
        "select": lambda rng, size: ",".join(f"/a{at}" for at in range(size // 8)),
        "order_by": lambda rng, size: ",".join(f"/a{at} DESC" for at in range(size // 12)),
        "group_by": lambda rng, size: ",".join(f"/a{at}" for at in range(size // 8)),
        "conflate": lambda rng, size: "9" * size,
        "from": lambda rng, size: "-" + "1h" * (size // 2),
    }  # fmt: skip
    user = ((name, texts[name](rng, min(size, 60_000))), *more)
    return encode_subscribe(1, [TopicRequest(f"keyed/{next(numbers)}", 0)], user=user)


def m_connect(rng: Random, size: int) -> bytes:
    who = f"{next(numbers)}-{rng.randrange(10**9)}"
    fields = Connect(5, who, True, 0, user=tuple(unknown(rng, size)))
    will = WillMessage(who, b"", properties=Properties(user=tuple(unknown(rng, size))))
    kinds = (
        lambda: encode_connect(fields),
        lambda: encode_connect(Connect(5, who, True, 0, will=will)),
        lambda: encode_connect(Connect(5, "x" * min(size, 65_000), True, 0)),
        lambda: encode_connect(Connect(5, who, True, 0, username="x" * min(size, 65_000), password=b"x")),
        lambda: encode_connect(Connect(4, who, True, 0, will=WillMessage("a/" * min(size // 2, 32_000), b""))),
    )
    return rng.choice(kinds)()


def m_publish(rng: Random, size: int, topic: str = "t", *, retain: bool = False, body: bytes = b"") -> bytes:
    user = tuple(unknown(rng, size))
    return encode_publish(topic, body, retain=retain, properties=Properties(user=user))


def m_small(rng: Random, size: int) -> bytes:
    """Many packets, each with some properties."""
    block = write_user(tuple(unknown(rng, 500)))
    one = write_frame(0x40, pack(">HB", 7, 0) + bytes((0xFF & len(block) | 0x80, len(block) >> 7)) + block)
    return one * (size // len(one))


def m_release(rng: Random, size: int) -> bytes:
    """PUBRELs with packet ids that the broker does not know."""
    return b"".join(b"\x62\2" + pack(">H", rng.randrange(1, 65_536)) for _ in range(size // 4))


def m_sizes(rng: Random, size: int) -> bytes:
    """Messages of which no two neighbours have one size."""
    return b"".join(encode_publish("t", b"x" * (at % 2)) for at in range(size // 6))


def m_goodbye(rng: Random, size: int) -> bytes:
    return write_frame(0xE0, b"\0" + write_properties(Fields(user=tuple(unknown(rng, size)))))


# AMQP 0-9-1


def a_frame(kind: int, payload: bytes, channel: int = 1) -> bytes:
    return pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def a_method(class_id: int, method_id: int, *parts: bytes) -> bytes:
    return a_frame(1, pack(">HH", class_id, method_id) + b"".join(parts))


def a_table(rng: Random, size: int) -> bytes:
    """Flat, nested, or of arrays."""
    flat = b"".join(write_short(name) + b"V" for name, _ in unknown(rng, size, 2))
    deep = b"\1aF\0\0\0\0"
    for _ in range(min(size // 7, 30)):
        deep = b"\1aF" + write_long(deep)
    arrays = b"\1aA" + write_long(b"V" * size)
    tables = b"\1aA" + write_long(b"F\0\0\0\0" * (size // 5))
    return write_long(rng.choice((flat, deep, arrays, tables)))


def a_declare(rng: Random, size: int) -> bytes:
    return a_method(50, 10, b"\0\0", write_short(f"q{rng.randrange(50)}"), b"\x10", a_table(rng, size))


def a_ask(rng: Random, size: int) -> bytes:
    """Questions that change nothing: does the queue exist, does it have a message?"""
    declare = a_method(50, 10, b"\0\0", b"\1e", b"\x11", b"\0\0\0\0")
    one = rng.choice((declare, a_method(60, 70, b"\0\0", b"\1e", b"\1")))
    return one * (size // len(one))


def a_consume(rng: Random, size: int) -> bytes:
    name = rng.choice((b"\1q", write_short("amq.topic")))
    table = write_table({name: text or "1" for name, text in rng.choice((unknown, slips))(rng, size, 7)})
    return a_method(60, 20, b"\0\0", name, write_short(f"{next(numbers)}"), b"\x02", table)


def a_selector(rng: Random, size: int) -> bytes:
    table = write_table({"x-headway-selector": selector(rng, size)})
    return a_method(60, 20, b"\0\0", b"\1q", write_short(f"{next(numbers)}"), b"\x02", table)


def a_bind(rng: Random, size: int) -> bytes:
    return a_method(50, 20, b"\0\0", b"\1q", write_short("amq.headers"), b"\1k", b"\1", a_table(rng, size))


def a_publish(rng: Random, size: int, table: Callable[[Random, int], bytes] = a_table, exchange: str = "amq.headers",
              key: str = "q") -> bytes:  # fmt: skip
    head = pack(">HHQH", 60, 0, 0, 0x2000) + table(rng, size)
    return a_method(60, 40, b"\0\0", write_short(exchange), write_short(key), b"\0") + a_frame(2, head)


def a_copies(rng: Random, size: int) -> bytes:
    keys = b"".join(b"S" + write_long(f"{next(numbers)}".encode()) for _ in range(size // 12))
    return a_publish(rng, size, lambda rng, size: write_long(b"\2CCA" + write_long(keys)), "amq.topic")


def a_start(rng: Random, size: int) -> bytes:
    """The login, with much about the client."""
    start = b"AMQP\0\0\x09\1"
    payload = pack(">HH", 10, 11) + a_table(rng, size) + write_short("PLAIN") + write_long(b"\0guest\0guest") + b"\0"
    return start + a_frame(1, payload, 0)


A_LOGIN = b"AMQP\0\0\x09\1" + b"".join(
    marshal(one, channel) for channel, one in
    ((0, Connection.StartOk({}, "PLAIN", "\0guest\0guest")), (0, Connection.TuneOk(0, 131_072, 0)),
     (0, Connection.Open()), (1, Channel.Open()))
)  # fmt: skip
A_QUEUE = a_method(50, 10, b"\0\0", b"\1q", b"\x10", b"\0\0\0\0")
A_BOUND = A_QUEUE + b"".join(
    a_method(50, 20, b"\0\0", b"\1q", write_short("amq.topic"), write_short("/".join(one).replace("+", "*")
             .replace("/", ".") + ".z"), b"\1", b"\0\0\0\0") for one in WILD[:1000])  # fmt: skip


def a_put(key: str, flags: int, properties: bytes) -> bytes:
    """A message without a body."""
    head = pack(">HHQH", 60, 0, 0, flags) + properties
    return a_method(60, 40, b"\0\0", b"\0", write_short(key), b"\0") + a_frame(2, head)


def a_many(rng: Random, size: int, then: bytes = b"") -> bytes:
    """Messages of all priorities, for a consumer that settles none of them before ``then``."""
    return b"".join(a_put("p", 0x0800, bytes((at % 10,))) for at in range(max(1, size // 50))) + then


def a_picky(rng: Random, size: int) -> bytes:
    """Messages with many headers, and one of twenty consumers with a selector that none of them matches."""
    headers = write_long(b"".join(write_short(name) + b"V" for name, _ in unknown(rng, 4000, 2)))
    tag, table = write_short(f"{rng.randrange(20)}"), write_table({"x-headway-selector": f"a{next(numbers)} = 1"})
    cancel, consume = a_method(60, 30, tag, b"\1"), a_method(60, 20, b"\0\0", b"\1q", tag, b"\x08", table)
    return a_put("q", 0x2000, headers) * (size // 4000) + cancel + consume


A_BACK, A_RECOVER = a_method(60, 120, pack(">QB", 0, 3)), a_method(60, 110, b"\1")
A_HELD = a_method(50, 10, b"\0\0", b"\1p", b"\x10", write_table({"x-max-priority": 9})) + a_method(
    60, 20, b"\0\0", b"\1p", b"\1c", b"\x08", b"\0\0\0\0")  # fmt: skip


def a_chain() -> bytes:
    """400 queues that expire into each other."""
    return b"".join(
        a_method(50, 10, b"\0\0", write_short(f"c{at}"), b"\x10", write_table({
            "x-message-ttl": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"c{at + 1}",
        })) for at in range(400)
    )  # fmt: skip


# AMQP 1.0


def b_pairs(rng: Random, size: int) -> dict[str, object]:
    return {name: None for name, _ in unknown(rng, size, 3)}


def b_deep(size: int) -> bytes:
    deep = writing.NULL
    for _ in range(min(size // 9, 30)):
        deep = writing.compound(0xC0, 1, deep)
    return deep


def b_attach(rng: Random, size: int) -> bytes:
    number = next(numbers)
    attach = Attach(f"{number}", number, True, 0, source=Source("queue://q"), target=Target())
    selected = {"apache.org:selector-filter:string": writing.Described(writing.Symbol("a"), selector(rng, size // 2))}
    kinds = (
        lambda: attach._replace(properties=b_pairs(rng, size)),
        lambda: attach._replace(source=Source("topic://t", filter=b_pairs(rng, size))),
        lambda: attach._replace(source=Source("topic://t", filter=selected)),
        lambda: attach._replace(properties=dict(slips(rng, size))),
    )
    return amqp1(0, rng.choice(kinds)())


def b_transfer(rng: Random, size: int) -> bytes:
    fields = [writing.uint(0), writing.uint(next(numbers)), writing.binary(b"t"), writing.uint(0), writing.TRUE]
    head = amqp1_frame(0, 0x14, fields)[8:]
    pairs = [(writing.string(name), writing.NULL) for name, _ in unknown(rng, size, 3)]
    section = rng.choice((0x71, 0x72, 0x74))
    content = head + writing.described(section, writing.map_of(pairs)) + writing.described(0x75, writing.binary(b"x"))
    return pack(">I", 8 + len(content)) + b"\2\0\0\0" + content


def b_small(rng: Random, size: int) -> bytes:
    """Small messages of which no two neighbours belong together."""

    def one(number: int) -> bytes:
        fields = [writing.uint(0), writing.uint(next(numbers)), writing.binary(b"t"), writing.uint(0), writing.TRUE]
        header = writing.described(0x70, writing.list_of([writing.boolean(number % 2 == 0)]))
        content = amqp1_frame(0, 0x14, fields)[8:] + header + writing.described(0x75, writing.binary(b"x"))
        return pack(">I", 8 + len(content)) + b"\2\0\0\0" + content

    return b"".join(map(one, range(size // 50)))


def b_held(rng: Random, size: int) -> bytes:
    """Messages for a link that ends as soon as it has them."""
    link = Attach("r", 1, True, 0, source=Source("queue://w"), target=Target())
    flow = Flow(0, 1 << 30, 0, 1 << 30, 1, 0, 100_000)
    zero, rest = writing.uint(0), [writing.binary(b"t"), writing.uint(0), writing.TRUE]
    heads = (amqp1_frame(0, 0x14, [zero, writing.uint(next(numbers)), *rest])[8:] for _ in range(size // 40))
    bodies = (head + writing.described(0x75, writing.binary(b"x")) for head in heads)
    transfers = b"".join(pack(">I", 8 + len(body)) + b"\2\0\0\0" + body for body in bodies)
    return transfers + amqp1(0, Detach(1, True)) + amqp1(0, link) + amqp1(0, flow)


def b_open(rng: Random, size: int) -> bytes:
    opened = b"AMQP\0\1\0\0" + amqp1(0, Open("x" * rng.randrange(1, size), None, 65_536, 255))
    sasl = b"AMQP\3\1\0\0" + amqp1_frame(0, 0x41, [writing.symbol("PLAIN"), writing.binary(b"\0" * size)], kind=1)
    arrays = b"AMQP\3\1\0\0" + amqp1_frame(0, 0x41, [writing.list_of([writing.NULL] * size)], kind=1)
    return rng.choice((opened, sasl, arrays))


B_LOGIN = b"AMQP\0\1\0\0" + amqp1(0, Open("hostile", None, 65_536, 255)) + amqp1(0, Begin(None, 0, 1 << 30, 1 << 30,
                                                                                          65_535))  # fmt: skip
B_SENDER = amqp1(0, Attach("s", 0, False, source=Source(), target=Target("topic://t"), initial_delivery_count=0))
B_HELD = amqp1(0, Attach("s", 0, False, source=Source(), target=Target("queue://w"), initial_delivery_count=0)) + amqp1(
    0, Attach("r", 1, True, 0, source=Source("queue://w"), target=Target()))  # fmt: skip


# STOMP


def s_frame(command: str, headers: list[tuple[str, str]], body: str = "") -> bytes:
    return f"{command}\n{''.join(f'{name}:{value}' + chr(10) for name, value in headers)}\n{body}\0".encode()


def s_subscribe(rng: Random, size: int) -> bytes:
    names = rng.choice((unknown, slips))(rng, min(size, 60_000), 3)[:490]
    return s_frame("SUBSCRIBE", [("id", f"{next(numbers)}"), ("destination", "/topic/t"), *names])


def s_selector(rng: Random, size: int) -> bytes:
    text = selector(rng, min(size, 60_000))
    return s_frame("SUBSCRIBE", [("id", f"{next(numbers)}"), ("destination", "/topic/t"), ("selector", text)])


def s_send(rng: Random, size: int) -> bytes:
    return s_frame("SEND", [("destination", "/queue/q"), *unknown(rng, min(size, 60_000), 2)[:490]])


def s_connect(rng: Random, size: int) -> bytes:
    kinds = (
        lambda: s_frame("CONNECT", unknown(rng, size, 2)[:490]),
        lambda: s_frame("CONNECT", unknown(rng, size, 2)),
        lambda: s_frame("CONNECT", [("accept-version", ",".join("9.9" for _ in range(size // 4)))]),
        lambda: s_frame("CONNECT", [("accept-version", "1.2"), ("login", "x" * size), ("passcode", "y")]),
        lambda: b"\n" * size + s_frame("CONNECT", [("accept-version", "1.2")]),
    )
    return rng.choice(kinds)()


def s_picky(rng: Random, size: int) -> bytes:
    """Messages with many headers, and a consumer with a selector that none of them matches."""
    sent = s_frame("SEND", [("destination", "/queue/q"), *unknown(rng, 4000, 2)[:490]])
    number = next(numbers)
    asked = [("id", f"{number}"), ("destination", "/queue/q"), ("selector", f"a{number} = 1")]
    return sent * (size // 4000) + s_frame("SUBSCRIBE", asked)


def s_small(rng: Random, size: int) -> bytes:
    one = s_frame(rng.choice(("BEGIN", "ABORT", "ACK")), [("transaction", f"{next(numbers)}"), ("id", "1")])
    return one * (size // len(one))


S_LOGIN = s_frame("CONNECT", [("accept-version", "1.2"), ("host", "x")])


# OpenWire


def o_map(rng: Random, size: int) -> bytes:
    flat = unknown(rng, size, 3)
    pairs = b"".join(pack(">H", len(name)) + name.encode() + b"\0" for name, _ in flat)
    values = pack(">i", 1) + pack(">H", 1) + b"a" + b"\x0c" + pack(">i", size) + b"\0" * size
    return rng.choice((pack(">i", len(flat)) + pairs, values))


def o_greeting(rng: Random, size: int) -> bytes:
    table = o_map(rng, size)
    body = b"\1" + jms.MAGIC + pack(">i", 12) + jms.YES + pack(">i", len(table)) + table
    return pack(">i", len(body)) + body


def o_message(rng: Random, size: int) -> bytes:
    kinds = (
        lambda: jms.message(28, jms.queue("q"), b"x", o_map(rng, size)),
        lambda: jms.message(25, jms.topic("t"), o_map(rng, size)),
        lambda: jms.message(24, jms.topic("t"), zlib.compress(bytes(size)), compressed=True),
        lambda: jms.message(24, jms.topic(",".join(f"{next(numbers)}" for _ in range(min(size, 60_000) // 12))), b"x"),
    )
    return rng.choice(kinds)()


def o_consumer(rng: Random, size: int) -> bytes:
    hints = " ".join(f"{name}={value or 1}" for name, value in rng.choice((unknown, slips))(rng, min(size, 60_000)))
    text = rng.choice((f"/*+ {hints} */ TRUE", f"/*+ {hints}", selector(rng, min(size, 60_000))))
    name = jms.topic(rng.choice(("t", "t?" + "&".join("a=1" for _ in range(1000)))))
    return jms.consumer_info(jms.consumer_id(value=next(numbers)), name, selector=text)


O_LOGIN = jms.wire_format() + jms.connection_info("hostile")


# WebSockets and HTTP


def w_open(subprotocol: str = "mqtt") -> bytes:
    key = b64encode(bytes(16)).decode()
    return (f"GET /mqtt HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: {subprotocol}\r\n"
            "Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n").encode()  # fmt: skip


def w_frame(payload: bytes, first: int = 0x82) -> bytes:
    size = len(payload)
    head = bytes((first, 0x80 | size)) if size < 126 else bytes((first, 0xFE)) + pack(">H", size)
    return (head if size < 65_536 else bytes((first, 0xFF)) + pack(">Q", size)) + bytes(4) + payload


def w_handshake(rng: Random, size: int) -> bytes:
    kinds = (
        lambda: w_open(",".join("a" for _ in range(size // 2))),
        lambda: w_open("mqtt\r\n" + "\r\n".join(f"{name}: 1" for name, _ in unknown(rng, size))),
        lambda: w_open("mqtt\r\nSec-WebSocket-Extensions: " + "a;" * (size // 2)),
        lambda: b"GET /" + b"a" * size,
    )
    return rng.choice(kinds)()


def w_frames(rng: Random, size: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    bomb = packer.compress(bytes(size * 500)) + packer.flush(zlib.Z_SYNC_FLUSH)
    kinds = (
        lambda: b"".join(w_frame(b"", 0x89) for _ in range(size // 6)),
        lambda: b"".join(w_frame(b"\xc0\0"[at % 2 : at % 2 + 1]) for at in range(size // 14 * 2)),
        lambda: w_frame(bomb[:-4], 0xC2),
    )
    return rng.choice(kinds)()


def h_get(rng: Random, size: int) -> bytes:
    pairs = "&".join(f"{name}={value}" for name, value in rng.choice((unknown, slips))(rng, size, 2))
    path = rng.choice(("/v1/state/keyed/%23", "/v1/topics/keyed/%23/records", "/v1/why/x", "/v1/consumers",
                       "/v1/console/consumers"))  # fmt: skip
    wanted = rng.choice((pairs, f"where={quote(selector(rng, size // 3))}", "select=" + "/a," * (size // 3),
                         "order_by=" + "/a," * (size // 3), "a" * size))  # fmt: skip
    return f"GET {path}?{wanted} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()


def h_post(rng: Random, size: int) -> bytes:
    tables = "".join(f"[[policy]]\nname = \"p{at}\"\n" for at in range(size // 24))
    dotted = "a" + ".a" * (size // 2) + " = 1"
    texts = (nested(rng, size), '"' + "\\u0000" * (size // 6) + '"', tables, dotted, "a = " + "[" * (size // 1),
             "a = " + "9" * size)  # fmt: skip
    path = rng.choice(("/v1/preview", "/v1/console/replay", "/v1/moves"))
    body = rng.choice(texts)
    return (f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}").encode()  # fmt: skip


def h_headers(rng: Random, size: int) -> bytes:
    lines = "\r\n".join(f"{name}: 1" for name, _ in unknown(rng, size))
    return f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n{lines}\r\n\r\n".encode()


def h_pages(rng: Random, size: int) -> bytes:
    """Requests for what is made of all consumers, one behind the other."""
    paths = ("/metrics", "/metrics/consumers", "/v1/consumers", "/v1/publishers", "/v1/broker", "/v1/topics")
    return b"".join(
        f"GET {rng.choice(paths)} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode() for _ in range(size // 40)
    )


def h_bombs(rng: Random, size: int) -> bytes:
    """Bodies that are much larger once they are decompressed, or come in very many chunks, or never."""
    path = rng.choice(("POST /v1/moves", "POST /v1/preview", "PUT /v1/cursors/x", "POST /v1/writers/w/parts"))
    head = f"{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    bomb = zlib.compress(b"[" * size * 500)
    kinds = (
        lambda: f"{head}Content-Encoding: deflate\r\nContent-Length: {len(bomb)}\r\n\r\n".encode() + bomb,
        lambda: f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + b"1\r\n[\r\n" * (size // 6) + b"0\r\n\r\n",
        lambda: f"{head}Content-Length: {2 * size}\r\n\r\n".encode() + b"[" * size,
    )
    return rng.choice(kinds)()


def h_parts(rng: Random, size: int) -> bytes:
    """Rows to be published: each of a topic of its own, or in a batch of its own, or compressed without measure, or
    with some bytes that are wrong."""
    import pyarrow as pa  # not above: brokers are forked with what is imported there, and their memory is measured

    from headway.store.rows import ROWS

    sink, rows, more = BytesIO(), size // 90, 1
    compression = rng.choice((None, "lz4", "zstd"))
    if rng.random() < 0.3:
        rows, more = 1, min(size // 900, 10_000)
    columns = [[f"{next(numbers)}" for _ in range(rows)], [None] * rows, [None] * rows, [bytes(20)] * rows]
    batch = pa.record_batch([pa.array(one, of.type) for one, of in zip(columns, ROWS, strict=True)], schema=ROWS)
    with pa.ipc.new_stream(sink, ROWS, options=pa.ipc.IpcWriteOptions(compression=compression)) as stream:
        for _ in range(more):
            stream.write_batch(batch)
    body = bytearray(sink.getvalue())
    for _ in range(rng.choice((0, 0, 1, 10))):
        body[rng.randrange(len(body))] = rng.choice((0, 127, 128, 255))
    head = f"POST /v1/writers/w/parts HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


M_LIMIT, A_LIMIT, B_LIMIT, S_LIMIT, O_LIMIT = 950 * KB, 120 * KB, 60 * KB, 60 * KB, 15 * MB
M_WILD = b"".join(encode_subscribe(1, [TopicRequest(f"{one}/z") for one in WILD[at : at + 512]])
                  for at in range(0, len(WILD), 512))  # fmt: skip
M_RETAINED = b"".join(encode_publish(f"r/{at % 10}/{at // 10 % 100}/{at}", b"x", retain=True) for at in range(10_000))
M_KEYED = encode_subscribe(1, [TopicRequest("keyed/#")], user=(("selector", '"/a" = 1'), ("key", "/a/b")))
M_STATE = b"".join(encode_publish(f"keyed/{at}", b'{"id":%d,"a":%d}' % (at, at % 97)) for at in range(10_000))


def m_live(rng: Random, size: int) -> bytes:
    """Pages of a large state in some orders, and aggregates of it; each in the place of the one before."""
    page = (("order_by", rng.choice(("/a,/id", "/a DESC,/id"))), ("top", "9000"), ("skip", f"{rng.randrange(1000)}"))
    rows = (("group_by", "/a"), ("select", f"count(*) AS c{rng.randrange(10**6)}, sum(/id)"))
    return encode_subscribe(1, [TopicRequest(rng.choice(("keyed/#", "keyed/+")), 0)], user=rng.choice((page, rows)))


KINDS = (
    Kind("mqtt", "CONNECT", 90 * KB, m_connect, login=False),
    Kind("mqtt", "unknown options", M_LIMIT, partial(m_subscribe, names=unknown)),
    Kind("mqtt", "misspelt options", M_LIMIT, partial(m_subscribe, names=slips)),
    Kind("mqtt", "options of many filters", M_LIMIT, m_filters),
    Kind("mqtt", "deep filters", M_LIMIT, m_deep),
    Kind("mqtt", "filters to end", M_LIMIT, lambda rng, size: encode_unsubscribe(1, [
        f"{next(numbers)}" for _ in range(size // 9 + 1)])),
    Kind("mqtt", "selectors", 64 * KB, partial(m_options, name="selector")),
    Kind("mqtt", "keys", 64 * KB, partial(m_options, name="key")),
    Kind("mqtt", "selections", 64 * KB, lambda rng, size: m_options(rng, size, "select", ("snapshot", "1"))),
    Kind("mqtt", "orders", 64 * KB, lambda rng, size: m_options(rng, size, "order_by", ("top", "10"))),
    Kind("mqtt", "groups", 64 * KB, lambda rng, size: m_options(rng, size, "group_by", ("select", "count(*)"))),
    Kind("mqtt", "durations", 64 * KB, partial(m_options, name="conflate")),
    Kind("mqtt", "starts", 64 * KB, partial(m_options, name="from")),
    Kind("mqtt", "properties", M_LIMIT, m_publish),
    Kind("mqtt", "properties, journaled", M_LIMIT, lambda rng, size: m_publish(rng, size, "recorded/t")),
    Kind("mqtt", "properties, selected", M_LIMIT, m_publish,
         encode_subscribe(1, [TopicRequest("t", 0)], user=(("selector", "a = 1"),))),
    Kind("mqtt", "retained properties", M_LIMIT,
         lambda rng, size: m_publish(rng, size, f"r/{next(numbers)}", retain=True)),
    Kind("mqtt", "topics", 65 * KB, lambda rng, size: encode_publish(fresh(rng, min(size, 65_000)), b"")),
    Kind("mqtt", "topics with many levels", 65 * KB, lambda rng, size: encode_publish(levels(rng, size), b""),
         encode_subscribe(1, [TopicRequest("+/" * 2000 + "#", 0)])),
    Kind("mqtt", "wildcards without a match", 1000, lambda rng, size: b"".join(
        encode_publish(f"{'/'.join('a' * 13)}/{next(numbers)}", b"") for _ in range(20)), M_WILD),
    Kind("mqtt", "wildcards that match", 1000, lambda rng, size: b"".join(
        encode_publish(f"{'/'.join('a' * 12)}/{rng.choice('ab')}/z", b"") for _ in range(20)), M_WILD),
    Kind("mqtt", "wildcards over retained topics", 1000, lambda rng, size: b"".join(
        encode_subscribe(1, [TopicRequest(f"r/+/+/x{next(numbers)}", 0)]) for _ in range(20)), M_RETAINED),
    Kind("mqtt", "acknowledgements with properties", M_LIMIT, m_small),
    Kind("mqtt", "releases of unknown ids", 60 * KB, m_release),
    Kind("mqtt", "sizes", M_LIMIT, m_sizes, encode_subscribe(1, [TopicRequest("t", 0)])),
    Kind("mqtt", "goodbyes", M_LIMIT, m_goodbye),
    Kind("mqtt", "bodies", M_LIMIT, lambda rng, size: encode_publish("keyed/t", nested(rng, size).encode()), M_KEYED),
    Kind("mqtt", "live queries", 1000, lambda rng, size: b"".join(m_live(rng, size) for _ in range(20)), M_STATE),
    Kind("mqtt", "patches", M_LIMIT, lambda rng, size: encode_publish(
        "keyed/t", b'{"id":1,' + nested(rng, size).encode().join((b'"a":', b"}")),
        properties=Properties(content_type="application/merge-patch+json")), M_KEYED),
    Kind("amqp", "START-OK", 4000, a_start, login=False),
    Kind("amqp", "declarations", A_LIMIT, a_declare),
    Kind("amqp", "questions", A_LIMIT, a_ask, a_method(50, 10, b"\0\0", b"\1e", b"\x10", b"\0\0\0\0")),
    Kind("amqp", "consumers", A_LIMIT, a_consume, A_QUEUE),
    Kind("amqp", "selectors", 64 * KB, a_selector, A_QUEUE),
    Kind("amqp", "bindings", A_LIMIT, a_bind, A_QUEUE),
    Kind("amqp", "headers", A_LIMIT, a_publish, A_QUEUE + a_method(
        50, 20, b"\0\0", b"\1q", write_short("amq.headers"), b"\1k", b"\1", write_table({"a": 1}))),
    Kind("amqp", "headers, into a queue", A_LIMIT, partial(a_publish, exchange="")),
    Kind("amqp", "copies", A_LIMIT, a_copies, A_QUEUE),
    Kind("amqp", "wildcards", 1000, lambda rng, size: b"".join(
        a_publish(rng, 0, lambda *_: b"\0\0\0\0", "amq.topic", f"{'.'.join('a' * 13)}.z{next(numbers)}")
        for _ in range(20)), A_BOUND),
    Kind("amqp", "dead letters of 400 queues", 1000,
         lambda rng, size: a_publish(rng, 0, lambda *_: b"\0\0\0\0", "", "c0") * 50, a_chain()),
    Kind("amqp", "deliveries given back", 20 * KB, partial(a_many, then=A_BACK), A_HELD),
    Kind("amqp", "deliveries recovered", 20 * KB, partial(a_many, then=A_RECOVER), A_HELD),
    Kind("amqp", "selectors in vain", A_LIMIT, a_picky, A_QUEUE),
    Kind("amqp", "messages that expire", 20 * KB, lambda rng, size: b"".join(
        a_put("q", 0x0100, write_short(str(50 + at % 2))) for at in range(size // 50)), A_QUEUE),
    Kind("amqp1", "OPEN", 500, b_open, login=False),
    Kind("amqp1", "links", B_LIMIT, b_attach),
    Kind("amqp1", "messages", B_LIMIT, b_transfer, B_SENDER),
    Kind("amqp1", "small messages", 40 * KB, b_small, B_SENDER),
    Kind("amqp1", "links that end", 20 * KB, b_held, B_HELD),
    Kind("stomp", "CONNECT", 60 * KB, s_connect, login=False),
    Kind("stomp", "options", S_LIMIT, s_subscribe),
    Kind("stomp", "selectors", S_LIMIT, s_selector),
    Kind("stomp", "selectors in vain", S_LIMIT, s_picky),
    Kind("stomp", "headers", S_LIMIT, s_send),
    Kind("stomp", "small frames", S_LIMIT, s_small),
    Kind("openwire", "greetings", 60 * KB, o_greeting, login=False),
    Kind("openwire", "messages", O_LIMIT, o_message),
    Kind("openwire", "consumers", O_LIMIT, o_consumer),
    Kind("ws", "handshakes", 8 * KB, w_handshake, login=False),
    Kind("ws", "frames", 60 * KB, w_frames, w_frame(connect("hostile"))),
    Kind("http", "questions", 8 * KB, h_get, login=False),
    Kind("http", "bodies", MB, h_post, login=False),
    Kind("http", "headers", 60 * KB, h_headers, login=False),
    Kind("http", "pages", 60 * KB, h_pages, login=False),
    Kind("http", "bodies that grow", 60 * KB, h_bombs, login=False),
    Kind("http", "parts", 8 * MB, h_parts, login=False),
)  # fmt: skip
LOGINS = {"amqp": A_LOGIN, "amqp1": B_LOGIN, "stomp": S_LOGIN, "openwire": O_LOGIN, "ws": w_open()}
PORTS = {"amqp1": "amqp"}


# -- the attack --------------------------------------------------------------------------------------------------------


@contextmanager
def attack(broker: BrokerProcess, kind: Kind, seed: str) -> Iterator[None]:
    """Clients of a kind, who say it as fast as it is read, and come again when they are thrown out."""

    def rounds(rng: Random) -> list[bytes]:
        drawn: list[bytes] = []
        while len(drawn) < ROUNDS and sum(map(len, drawn)) < ROUNDS_BYTES:
            drawn.append(kind.say(rng, int(kind.bytes_max ** rng.uniform(0.7, 1.0))))
        return drawn

    def fight(number: int, over: threading.Event) -> None:
        said = cycle(rounds(Random(f"{seed} {number}")))
        while not over.is_set():
            with suppress(OSError), _come(broker, kind, number) as sock:
                for one in said:
                    _say(sock, one, over)
                    if over.is_set() or not kind.login:
                        break
            over.wait(0.001)

    with beside(partial(fight, 0)), beside(partial(fight, 1)):
        yield


def _come(broker: BrokerProcess, kind: Kind, number: int) -> socket.socket:
    if kind.protocol == "http":
        port = int(broker.admin.rpartition(":")[2])
    else:
        port = broker.ports[PORTS.get(kind.protocol, kind.protocol)]
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setblocking(False)
    if kind.login:
        login = LOGINS.get(kind.protocol) or connect(f"hostile {number}")
        _say(sock, login, None)
        select([sock], [], [], 5)
        if kind.begin:
            _say(sock, kind.begin, None)
    return sock


def _say(sock: socket.socket, data: bytes, over: threading.Event | None) -> None:
    """Says something, and reads what is answered meanwhile."""
    left = memoryview(data)
    while left and not (over is not None and over.is_set()):
        readable, writable, _ = select([sock], [sock], [], 0.2)
        if readable and not sock.recv(1 << 18):
            raise ConnectionError
        if writable:
            left = left[sock.send(left) :]


def run(say: Callable[[str], None], words: tuple[str, ...] = (), seconds: float = SECONDS) -> Iterator[Row]:
    seed = os.environ.get("HEADWAY_SEED") or str(Random().randrange(10**6))
    say(f"HEADWAY_SEED={seed}")
    for kind in KINDS:
        if words and not any(word in kind.title for word in words):
            continue
        setting = Setting(partial(attack, kind=kind, seed=seed), "64MB", "256MB", CONFIG, journal=True)
        try:
            with tempfile.TemporaryDirectory() as folder:
                told = held(kind.title, setting, Path(folder), seconds)
        except AssertionError as error:  # the canary could not come in, or the broker has ended
            say(f"{kind.title}: {error!r}")
            yield Row(kind.title, repr(error), "a canary that sings", False)
            continue
        say(str(told))
        song, limit = told.song, told.memory_limit_bytes + RSS_BEYOND_POOL_BYTES_MAX
        found = f"p99 {song.p99_ms:g} ms, longest {song.longest_ms:g} ms, lost {song.sent - song.received}"
        wanted = f"p99 {P99_MS_MAX:g} ms, longest {LONGEST_MS_MAX:g} ms, lost 0, RSS {limit / 1e6:.0f} MB"
        yield Row(kind.title, f"{found}, RSS {told.rss_peak_bytes / 1e6:.0f} MB", wanted, told.held)


PART = Part("hostile", "a canary beside clients that say what takes long to read, over each protocol", run)


if __name__ == "__main__":
    rows = list(run(lambda text: print(text, flush=True), tuple(sys.argv[1:])))
    sys.exit(not all(row.held for row in rows))
