"""Headway over AMQP, as RabbitMQ is measured: the same broker and settings, another listener."""

from __future__ import annotations

from bench.peers.headway import Headway
from bench.peers.peer import Instance
from bench.wires.amqp import Amqp, AmqpQueue


class HeadwayAmqp(Headway):
    name, title = "headway-amqp", "Headway (AMQP)"
    wire = Amqp()
    queue_wire = AmqpQueue()
    conflating_wire = None
    durable_listener = ""
    config = Headway.config.replace("mqtt", "amqp")
    why = ("As Headway's, but for the listener: what it is compared with speaks AMQP too.",)

    def durable_port(self, instance: Instance) -> int:
        return instance.port
