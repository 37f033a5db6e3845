"""MQTT's side of a connection."""

from headway.server.mqtt.peer import MqttPeer

__all__ = [
    "MqttPeer",
]
