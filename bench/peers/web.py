"""Brokers over WebSocket: the same ones, with subscribers as browsers are."""

from __future__ import annotations

from collections.abc import Sequence

from bench.peers.headway import Headway
from bench.peers.mosquitto import Mosquitto
from bench.peers.nats import NatsServer
from bench.peers.peer import Instance, Peer
from bench.peers.rabbitmq import Rabbitmq
from bench.wires.web import MqttWeb, NatsWeb

WHY = "As without WebSocket, and a listener more: subscribers are on this one, publishers on the plain one."


def deflated(peer: HeadwayWeb | NatsServerWeb | RabbitmqWeb) -> Peer:
    """Gives a peer's subscribers a wire that offers compression."""
    peer.wire = type(peer.wire)()
    peer.wire.deflated = True
    return peer


class HeadwayWeb(Headway):
    name, title = "headway-ws", "Headway (WebSocket)"
    wire: MqttWeb = MqttWeb()
    conflating_wire = None
    inside = "websocket"
    config = (
        Headway.config.replace("{port}", "{third_port}")
        + '[listeners.web]\nurl = "ws://127.0.0.1:{port}"\nconnections_max = 20_000\n'
    )
    why: Sequence[str] = (WHY,)

    def compressing(self) -> Peer:
        peer = HeadwayWeb()
        peer.config += "compression = true\n"
        return deflated(peer)

    def prepare(self, instance: Instance) -> None:
        super().prepare(instance)
        self.wire.plain_port = instance.third_port


class MosquittoWeb(Mosquitto):
    name, title = "mosquitto-ws", "mosquitto (WebSocket)"
    wire: MqttWeb = MqttWeb()
    inside = "websocket"
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
    inside = "websocket"
    config = (
        NatsServer.config.replace("{port}", "{third_port}")
        + 'websocket {{\n  host: "127.0.0.1"\n  port: {port}\n  no_tls: true\n}}\n'
    )
    why: Sequence[str] = (WHY,)

    def compressing(self) -> Peer:
        peer = NatsServerWeb()
        peer.config = peer.config.replace("no_tls: true", "no_tls: true\n  compression: true")
        return deflated(peer)

    def prepare(self, instance: Instance) -> None:
        super().prepare(instance)
        self.wire.plain_port = instance.third_port


class RabbitmqWeb(Rabbitmq):
    name, title = "rabbitmq-ws", "RabbitMQ (WebSocket)"
    wire: MqttWeb = MqttWeb()
    queue_wire = None
    durable_wire = None
    inside = "websocket"
    config = """
listeners.tcp = none
mqtt.listeners.tcp.1 = 127.0.0.1:{fourth_port}
web_mqtt.tcp.ip = 127.0.0.1
web_mqtt.tcp.port = {port}
web_mqtt.ws_path = /mqtt
log.console.level = error
"""
    why: Sequence[str] = ("Its plug-in rabbitmq_web_mqtt; publishers are on MQTT's plain listener.",)

    def compressing(self) -> Peer:
        peer = RabbitmqWeb()
        peer.config += "web_mqtt.ws_opts.compress = true\n"
        return deflated(peer)

    def prepare(self, instance: Instance) -> None:
        super().prepare(instance)
        (instance.folder / "plugins").write_text("[rabbitmq_web_mqtt].\n")
        self.wire.plain_port = instance.fourth_port
