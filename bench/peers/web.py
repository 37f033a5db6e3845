"""Brokers over WebSocket: the same ones, with subscribers as browsers are."""

from __future__ import annotations

from collections.abc import Sequence

from bench.peers.headway import Headway
from bench.peers.mosquitto import Mosquitto
from bench.peers.nats import NatsServer
from bench.peers.peer import Instance
from bench.wires.web import MqttWeb, NatsWeb

WHY = "As without WebSocket, and a listener more: subscribers are on this one, publishers on the plain one."


class HeadwayWeb(Headway):
    name, title = "headway-ws", "Headway (WebSocket)"
    wire: MqttWeb = MqttWeb()
    conflating_wire = None
    config = (
        Headway.config.replace("{port}", "{third_port}")
        + '[listeners.web]\nurl = "ws://127.0.0.1:{port}"\nconnections_max = 20_000\n'
    )
    why: Sequence[str] = (WHY,)

    def prepare(self, instance: Instance) -> None:
        super().prepare(instance)
        self.wire.plain_port = instance.third_port


class MosquittoWeb(Mosquitto):
    name, title = "mosquitto-ws", "mosquitto (WebSocket)"
    wire: MqttWeb = MqttWeb()
    config = Mosquitto.config.replace("{port}", "{third_port}") + "listener {port} 127.0.0.1\nprotocol websockets\n"
    why: Sequence[str] = (WHY,)

    def tuned(self, workload: str) -> Mosquitto:
        return self

    def prepare(self, instance: Instance) -> None:
        super().prepare(instance)
        self.wire.plain_port = instance.third_port


class NatsServerWeb(NatsServer):
    name, title = "nats-ws", "NATS (WebSocket)"
    wire: NatsWeb = NatsWeb()
    config = (
        NatsServer.config.replace("{port}", "{third_port}")
        + 'websocket {{\n  host: "127.0.0.1"\n  port: {port}\n  no_tls: true\n}}\n'
    )
    why: Sequence[str] = (WHY,)

    def prepare(self, instance: Instance) -> None:
        super().prepare(instance)
        self.wire.plain_port = instance.third_port
