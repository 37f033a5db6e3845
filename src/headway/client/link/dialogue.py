"""A client's side of MQTT 5 on one connection: what it writes, and what it makes of what comes. No I/O and no clock.

Rules:
- The broker's own codec reads and writes the packets, many records in one call.
- What comes is handled in order, so an answer comes behind all that was sent before it. Of what has come, no more is
  handled than the receiver has room for; the rest waits here, and the link reads nothing meanwhile.
- A record of QoS 1 is acknowledged when the receiver has it. QoS 2 is never asked for.
- The first DISCONNECT, refusal or error is the last thing that is read: it is ``over``.
"""

from __future__ import annotations

from headway.client.link.errors import LinkError
from headway.client.link.receiver import Pairs, Receiver
from headway.core.message import Run
from headway.wire.mqtt.codes import ReasonCode
from headway.wire.mqtt.decoder import MqttDecoder
from headway.wire.mqtt.packets import (
    ConnAck,
    Connect,
    DisconnectPacket,
    Item,
    Publish,
    SubAck,
    TopicRequest,
    UnsubAck,
)
from headway.wire.mqtt.requests import (
    encode_ack,
    encode_connect,
    encode_disconnect,
    encode_pingreq,
    encode_subscribe,
    encode_unsubscribe,
)

KEEP_ALIVE_S = 60
NEVER_RETAINED = 2
PUBACK = 4
PACKET_IDS = 65_535
RETRY_AFTER = "retry-after-s"
FINAL = frozenset({0x84, 0x85, 0x86, 0x87, 0x8A, 0x8C})
"""Codes of CONNACK for whom the broker does not know, or does not let in."""


class Dialogue:
    def __init__(self, receiver: Receiver, place: str) -> None:
        """``place``: the broker's address, for messages."""
        self._receiver = receiver
        self._place = place
        self._decoder = MqttDecoder(role="client", version=5)
        self._number = 0
        """The number of the last SUBSCRIBE or UNSUBSCRIBE."""
        self.out = bytearray()
        """Bytes for the broker."""
        self.greeted = False
        """The broker has let the client in."""
        self.keep_alive_s = KEEP_ALIVE_S
        """The client says something at least so often; 0: it need not."""
        self.over: LinkError | None = None

    # -- what is asked ------------------------------------------------------------------------------------------------

    def connect(self, client_id: str, user: str | None, password: str | None, receive_max: int) -> None:
        """Asks to be let in, with a session that begins anew and ends with the connection."""
        raw = None if password is None else password.encode()
        self.out += encode_connect(
            Connect(5, client_id, True, KEEP_ALIVE_S, username=user, password=raw, receive_max=receive_max)
        )

    def subscribe(self, filter: str, qos: int, user: Pairs) -> int:
        """Asks for records, but for no retained ones. Returns the number that the answer will have."""
        request = TopicRequest(filter, qos, retain_handling=NEVER_RETAINED)
        self.out += encode_subscribe(self._next(), [request], user=tuple(user))
        return self._number

    def unsubscribe(self, filter: str) -> int:
        self.out += encode_unsubscribe(self._next(), [filter])
        return self._number

    def ping(self) -> None:
        self.out += encode_pingreq()

    def goodbye(self) -> None:
        """Ends the dialogue: nothing that comes is read any more."""
        self.out += encode_disconnect()
        self.over = self.over or LinkError(f"{self._place}: the connection was closed here")

    def _next(self) -> int:
        self._number = self._number % PACKET_IDS + 1
        return self._number

    # -- what comes ---------------------------------------------------------------------------------------------------

    @property
    def waits(self) -> bool:
        """Packets have come that were not handled yet."""
        return self._decoder.waits and self.over is None

    def take(self, data: bytes, packets_max: int) -> None:
        """Handles what has come, at most so many packets of it. Records that differ in nothing but their payloads count
        as one; those of a view differ in their offsets."""
        decoder = self._decoder
        if self.over is not None:
            return
        runs: list[Run] = []
        for item in decoder.feed(data, packets_max):
            if type(item) is Run:
                runs.append(item)
            elif type(item) is Publish:
                self._add(item, runs)
            else:
                self._hand_over(runs)
                if self.over is None:
                    self._answered(item)
            if self.over is not None:
                return
        self._hand_over(runs)
        if decoder.error is not None and not decoder.waits and self.over is None:
            self.over = LinkError(f"{self._place}: {decoder.error}")

    def _add(self, item: Publish, runs: list[Run]) -> None:
        runs.append(item.run)
        if item.qos == 1:
            self._hand_over(runs)
            self.out += encode_ack(PUBACK, item.packet_id)
        elif item.qos:
            self.over = LinkError(f"{self._place}: a record came at QoS 2, which nobody asked for")

    def _hand_over(self, runs: list[Run]) -> None:
        if runs:
            self._receiver.received(runs.copy())
            runs.clear()

    def _answered(self, item: Item) -> None:
        if type(item) is SubAck:
            refused = next((code for code in item.codes if code >= 0x80), None)
            refusal = "" if refused is None else item.reason or _name(refused)
            self._receiver.granted(item.packet_id, refusal, item.user)
        elif type(item) is UnsubAck:
            self._receiver.ended(item.packet_id)
        elif type(item) is ConnAck:
            self._greet(item)
        elif type(item) is DisconnectPacket:
            self.over = LinkError(item.reason or _name(item.code))

    def _greet(self, answer: ConnAck) -> None:
        fields = answer.fields
        if answer.code:
            retry_after_s = float(dict(fields.user).get(RETRY_AFTER, "0"))
            text = f"{self._place} refused: {fields.reason_string or _name(answer.code)}"
            self.over = LinkError(text, retry_after_s=retry_after_s, final=answer.code in FINAL)
            return
        self.greeted = True
        if fields.server_keep_alive is not None:
            self.keep_alive_s = fields.server_keep_alive


def _name(code: int) -> str:
    return ReasonCode(code).name.replace("_", " ").lower()
