"""MQTT 5 and 3.1.1."""

from __future__ import annotations

from collections.abc import Sequence

from headway.core.message import Run
from headway.trouble.plan import KEEP_ALIVE_S
from headway.trouble.wires.dialogue import Delivery, Dialogue
from headway.wire.mqtt.codes import ReasonCode
from headway.wire.mqtt.decoder import MqttDecoder
from headway.wire.mqtt.packets import (
    ConnAck,
    Connect,
    DisconnectPacket,
    Item,
    PubAck,
    Publish,
    SubAck,
    TopicRequest,
)
from headway.wire.mqtt.primitives import write_frame, write_text
from headway.wire.mqtt.requests import (
    encode_ack,
    encode_connect,
    encode_disconnect,
    encode_pingreq,
    encode_subscribe,
)

PUBACK = 4
PACKET_IDS = 65_535
NEVER_RETAINED = 2
REFUSALS_3_1_1 = {1: "unacceptable protocol version", 2: "identifier rejected", 3: "server unavailable",
                  4: "bad user name or password", 5: "not authorized"}  # fmt: skip


class MqttDialogue(Dialogue):
    def __init__(self, name: str, user: str | None, password: str | None, version: int) -> None:
        super().__init__()
        self._name, self._user, self._version = name, user, version
        self._password = None if password is None else password.encode()
        self._decoder = MqttDecoder(role="client", version=version)
        self._number = 0

    def open(self, window: int | None) -> None:
        self.out += encode_connect(Connect(
            self._version, self._name, True, KEEP_ALIVE_S, username=self._user, password=self._password,
            receive_max=window or PACKET_IDS,
        ))  # fmt: skip

    def subscribe(self, filters: Sequence[str], *, acked: bool) -> None:
        handling = NEVER_RETAINED if self._version == 5 else 0
        requests = [TopicRequest(one, int(acked), retain_handling=handling) for one in filters]
        self.out += encode_subscribe(1, requests, version=self._version)

    def prepare(self) -> None:
        """Every PUBLISH says it itself."""

    def publish(self, topic: str, payload: bytes, *, confirmed: bool) -> None:
        parts = [write_text(topic)]
        if confirmed:
            self._number = self._number % PACKET_IDS + 1
            self.unconfirmed += 1
            parts.append(self._number.to_bytes(2, "big"))
        if self._version == 5:
            parts.append(b"\x00")
        self.out += write_frame(0x32 if confirmed else 0x30, *parts, payload)

    def take(self, data: bytes) -> list[Delivery]:
        found: list[Delivery] = []
        for item in self._decoder.feed(data):
            if type(item) is Run:
                found += _deliveries(item, 0)
            elif type(item) is Publish:
                found += _deliveries(item.run, item.packet_id)
            else:
                self._answered(item)
        if self._decoder.error is not None:
            self.over = self.over or f"it does not speak MQTT as this client does: {self._decoder.error}"
        return found

    def _answered(self, item: Item) -> None:
        if type(item) is PubAck:
            self.unconfirmed -= 1
            if item.code >= 0x80:
                self.refused, self.refusal = self.refused + 1, _name(item.code)
            else:
                self.confirmed += 1
        elif type(item) is SubAck:
            refused = next((code for code in item.codes if code >= 0x80), None)
            self.granted = refused is None
            if refused is not None:
                self.over = f"subscription refused: {item.reason or _name(refused)}"
        elif type(item) is ConnAck:
            self._greet(item)
        elif type(item) is DisconnectPacket:
            self.over = f"{_name(item.code)} (0x{item.code:02x})" + (f": {item.reason}" if item.reason else "")

    def _greet(self, answer: ConnAck) -> None:
        if answer.code:
            word = _name(answer.code) if self._version == 5 else REFUSALS_3_1_1.get(answer.code, str(answer.code))
            self.over = f"refused: {answer.fields.reason_string or word}"
            return
        self.greeted = True
        if answer.fields.receive_max is not None:
            self.window = min(self.window, answer.fields.receive_max)

    def acknowledge(self, tags: Sequence[int]) -> None:
        self.out += b"".join(encode_ack(PUBACK, tag) for tag in tags)

    def ping(self) -> None:
        self.out += encode_pingreq()

    def goodbye(self) -> None:
        self.out += encode_disconnect(version=self._version)


def _deliveries(run: Run, tag: int) -> list[Delivery]:
    return [Delivery(run.data[body:end], tag) for body, end in zip(run.bodies, run.ends, strict=True)]


def _name(code: int) -> str:
    try:
        return ReasonCode(code).name.replace("_", " ").lower()
    except ValueError:
        return f"code 0x{code:02x}"
