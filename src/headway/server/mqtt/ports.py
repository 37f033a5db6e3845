"""Ports: the protocols by which the parts of MQTT's side of a connection know each other."""

from __future__ import annotations

from abc import ABC, abstractmethod

from headway.server.peers import BasePeer
from headway.wire.mqtt.decoder import MqttDecoder
from headway.wire.mqtt.packets import Item
from headway.wire.mqtt.replies import Replies


class ClientSide(BasePeer[Item], ABC):
    """The peer, as its greeting knows it."""

    __slots__ = ("incoming_max", "replies", "will_due")

    decoder: MqttDecoder
    replies: Replies
    will_due: bool
    """Whether the will is published at the end: yes, unless the client disconnects normally."""
    incoming_max: int

    @abstractmethod
    def send_pubrel(self, delivery_id: int, code: int = 0) -> None: ...
