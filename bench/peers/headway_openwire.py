"""Headway over OpenWire: the same broker and settings, another listener."""

from __future__ import annotations

from bench.peers.headway import Headway
from bench.wires.openwire import Openwire, OpenwireEach, OpenwireQueue
from bench.wires.wire import NamedQueueWire, Wire


class HeadwayOpenwire(Headway):
    name, title = "headway-openwire", "Headway (OpenWire)"
    wire: Wire = Openwire()
    queue_wire: NamedQueueWire | None = OpenwireQueue()
    conflating_wire = None
    config = Headway.config.replace("mqtt", "openwire")
    why = ("As Headway's, but for the listener. Persistent records are published by AMQP, as with Headway.",)


class HeadwayOpenwireCached(HeadwayOpenwire):
    name, title = "headway-openwire-cached", "Headway (OpenWire, cached)"
    wire: Wire = Openwire(cached=True)
    only_named = True
    why = ("Objects that come again are written as numbers, as JMS clients have it unless they are told not to.",)


class HeadwayJms(HeadwayOpenwire):
    name, title = "headway-jms", "Headway (as JMS, AUTO_ACKNOWLEDGE)"
    wire: Wire = OpenwireEach(cached=True)
    queue_wire = None
    only_named = True
    why = ("As cached, and each message is acknowledged on its own, also of topics: JMS's AUTO_ACKNOWLEDGE.",)
