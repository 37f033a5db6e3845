"""Headway over STOMP: the same broker and settings, another listener."""

from __future__ import annotations

from bench.peers.headway import Headway
from bench.wires.stomp import Stomp, StompQueue


class HeadwayStomp(Headway):
    name, title = "headway-stomp", "Headway (STOMP)"
    wire = Stomp()
    queue_wire = StompQueue()
    conflating_wire = None
    config = Headway.config.replace("mqtt", "stomp")
    why = ("As Headway's, but for the listener. Persistent records are published by AMQP, as with Headway.",)
