"""A durable subscription that comes back changed, and is refused, is there as before, with what waits for it."""

from __future__ import annotations

from struct import pack

import pytest
from tests.server.amqp_stage import House
from tests.server.pretended import Socket
from tests.server.test_rights_first import LOGINS
from tests.wire import openwire_frames as jms

from headway.server.amqp1.terminus import OPTION
from headway.wire.amqp1.performatives import Attach, Detach, Source, Target
from headway.wire.amqp1.replies import write
from headway.wire.amqp1.values import Symbol

OTHER, UNKNOWN = "a = 1", "none of that name"


def stomp(selector: str = "", policy: str = "") -> bytes:
    more = f"selector:{selector}\n" * bool(selector) + f"policy:{policy}\n" * bool(policy)
    return f"SUBSCRIBE\nid:s\ndestination:/topic/t\ndurable:true\nauto-delete:false\n{more}\n\0".encode()


def amqp1(selector: str = "", policy: str = "", topic: str = "t") -> bytes:
    told = {Symbol(OPTION + name): value for name, value in (("selector", selector), ("policy", policy)) if value}
    source = Source(f"topic://{topic}", durable=2, expiry_policy="never")
    return write(0, Attach("s", int(topic != "t"), True, source=source, target=Target(), properties=told))


def openwire(number: int, selector: str = "", policy: str = "", topic: str = "t") -> bytes:
    hint = f"/*+ policy='{policy}' */ " * bool(policy)
    consumer = jms.consumer_id(value=number)
    return jms.consumer_info(consumer, jms.topic(topic), selector=hint + selector, subscription="s")


STORIES = {
    "stomp": (stomp(), b"UNSUBSCRIBE\nid:s\n\n\0", [stomp(OTHER, UNKNOWN)]),
    "amqp1": (amqp1(), write(0, Detach(0, False)), [amqp1(OTHER, UNKNOWN), amqp1("", UNKNOWN, "u")]),
    "openwire": (openwire(1), jms.frame(12, jms.consumer_id(value=1), pack(">q", 0)),
                 [openwire(2, OTHER, UNKNOWN), openwire(3, "", UNKNOWN, "u")]),
}  # fmt: skip


@pytest.mark.parametrize("protocol", STORIES)
def test_a_subscription_that_is_refused_ends_none(protocol: str) -> None:
    house = House('[listeners.mqtt]\nurl = "mqtt://127.0.0.1:0"\n')
    peer, said = LOGINS[protocol]
    sock = Socket()
    house.accept(sock, "amqp", peer)
    first, gone, others = STORIES[protocol]
    for piece in (*said, first):
        sock.incoming.append(piece)
        house.run()
    (queue,) = house.queues.values()
    sock.incoming.append(gone)
    house.run()
    for piece in others:
        sock.taken.clear()
        sock.incoming.append(piece)
        house.run()
        assert b"there is no policy" in sock.taken
    assert list(house.queues.values()) == [queue]
