"""MQTT's side of a connection."""

from headway.server.mqtt.peer import MqttPeer

PEER = MqttPeer

__all__ = [
    "MqttPeer", "PEER",
]
