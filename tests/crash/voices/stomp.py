"""STOMP 1.2."""

from __future__ import annotations

from tests.crash.life import Life
from tests.crash.voices.voice import Begun, Came, Ended, Fault, Kept, Place, Voice


class Subscribed:
    """The broker has begun a subscription."""


class Stomp(Voice):
    protocol = "stomp"

    def __init__(self, life: Life, name: str) -> None:
        super().__init__(life, name)
        self._tail = b""
        self._within = False
        self._say("CONNECT", accept_version="1.2", client_id=name)

    @staticmethod
    def port(life: Life) -> int:
        return life.stomp

    def _say(self, command: str, body: bytes = b"", **headers: str) -> None:
        if self._within and command in ("SEND", "ACK"):
            headers["transaction"] = "t"
        lines = "".join(f"{name.replace('_', '-')}:{value}\n" for name, value in headers.items())
        self.sock.sendall(f"{command}\n{lines}\n".encode() + body + b"\0")

    def take(self, data: bytes) -> None:
        *frames, self._tail = (self._tail + data).split(b"\0")  # no body has a NUL in it
        for frame in frames:
            head, _, body = frame.lstrip(b"\n").partition(b"\n\n")
            command, *lines = head.decode().split("\n")
            headers = dict(line.split(":", 1) for line in lines)
            match command:
                case "MESSAGE":
                    self.inbox.append(Came(int(headers["ack"]), body, headers["redelivered"] == "true"))
                case "RECEIPT":
                    self._receipt(headers["receipt-id"])
                case "ERROR":
                    self.inbox.append(Fault(body.decode()))

    def _receipt(self, told: str) -> None:
        if told == "subscribed":
            self.inbox.append(Subscribed())
        else:
            self.inbox.append(Ended() if told == "ended" else Kept(int(told)))

    def consume(self, place: Place, credit: int, *, upto: bool, durable: str = "") -> None:
        to = f"/topic/{place.name.replace('#', '>')}" if place.is_topic else f"/queue/{place.name}"
        more = {"activemq.subscriptionName": durable, "receipt": "subscribed"} if durable else {}
        ack = "client" if upto else "client-individual"
        self._say("SUBSCRIBE", id="c", destination=to, ack=ack, prefetch_count=str(credit), **more)
        if durable:
            self.until(Subscribed)
            self.inbox = [item for item in self.inbox if not isinstance(item, Subscribed)]

    def stop_consuming(self) -> None:
        self._say("UNSUBSCRIBE", id="c")

    def send(self, place: Place, body: bytes, number: int) -> None:
        to = f"/{'topic' if place.is_topic else 'queue'}/{place.name}"
        more = {} if self._within else {"receipt": str(number)}
        self._say("SEND", body, destination=to, persistent="true", content_length=str(len(body)), **more)

    def settle(self, number: int) -> None:
        self._say("ACK", id=str(number))

    def give_back(self, number: int) -> None:
        self._say("NACK", id=str(number))

    def begin(self) -> None:
        self._say("BEGIN", transaction="t")
        self._within = True
        self.inbox.append(Begun())

    def end(self, *, commit: bool) -> None:
        self._within = False
        self._say("COMMIT" if commit else "ABORT", transaction="t", receipt="ended")
