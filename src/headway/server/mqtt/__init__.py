"""MQTT's side of a connection."""

from headway.server.mqtt.peer import MqttPeer as PEER

__all__ = ["PEER"]
