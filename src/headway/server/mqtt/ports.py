"""Ports: what the parts of MQTT's side of a connection know of each other."""

from __future__ import annotations

from abc import ABC

from headway.server.config import ListenerTable
from headway.server.connections import Connection
from headway.server.engine import Engine
from headway.server.peers import BasePeer
from headway.wire.mqtt.decoder import MqttDecoder
from headway.wire.mqtt.packets import Item
from headway.wire.mqtt.replies import Replies

CONNECT_BYTES_MAX = 64 * 1024
"""Limit of a CONNECT, will and all."""
TOPIC_ALIAS_MAX = 64
NO_LIMIT = 65_535
"""The limit for clients that cannot be told one: all ids there are. Each takes one bit (packet_ids.py). Not reading the
client would be no way out, because its releases come behind its publishes."""


class ClientSide(BasePeer[Item], ABC):
    """The peer, as its greeting knows it."""

    __slots__ = ("incoming_max", "is_bridge", "replies", "will_due")

    decoder: MqttDecoder

    def __init__(self, engine: Engine, connection: Connection, listener: ListenerTable) -> None:
        decoder = MqttDecoder(min(CONNECT_BYTES_MAX, listener.packet_bytes_max), topic_alias_max=TOPIC_ALIAS_MAX)
        super().__init__(engine, connection, listener, decoder)
        self.replies = Replies(0)
        self.is_bridge = False
        """Whether the client is another broker's bridge: see ``MqttPeer._subscribe``."""
        self.will_due = True
        """Whether the will is published at the end: yes, unless the client disconnects normally."""
        self.incoming_max = NO_LIMIT

    def send_pubrel(self, delivery_id: int, code: int = 0) -> None:
        self.pending_replies.send(self.replies.pubrel(delivery_id, code), kept=self.granted.durable)
