"""The consumers: one client each, real MQTT 5, differing only in how they treat what they get."""

from __future__ import annotations

import socket
import time
from collections import deque
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from demo import cast
from demo.actors.actor import (
    REPORT_EVERY_S,
    Orders,
    connect,
    loop_until,
    main,
    make_client,
    say,
    subscribe,
    words,
)
from demo.actors.tally import Tally
from demo.cast import Behaviour, Role
from demo.reports import ActorReport

RECEIVE_BUFFER = 32 * 1024
"""Receive buffer of slow consumers. The kernel's larger default would only hide for longer that they do not read."""
TURN_S = 0.05
DRAIN_S = 3.0
"""How long, at the end, somebody who had stopped reading looks at what there is, to see how it was told."""
KNOCK_AGAIN_S = 0.5


class Consumer:
    """Healthy: reads, and acknowledges, as it comes."""

    receive_maximum: int | None = None
    manual_ack = False

    def __init__(self, part: Role, orders: Orders) -> None:
        self.part = part
        self.orders = orders
        self.ledger = Tally()
        self.subscribed = False
        self.client = self._make_client()
        self._told_s = 0.0

    def _make_client(self) -> mqtt.Client:
        client = make_client(self.part, receive_maximum=self.receive_maximum, manual_ack=self.manual_ack)
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_subscribe = self._on_subscribe
        client.on_message = self._on_message
        if not self.part.healthy:
            client.on_socket_open = _small_buffer
        return client

    # -- what paho calls --------------------------------------------------------------------------------------------

    def _on_connect(
        self, client: mqtt.Client, _data: Any, _flags: Any, code: ReasonCode, props: Properties | None
    ) -> None:
        if code.is_failure:
            self.ledger.refusals += 1
            self.ledger.told.setdefault(words(code, props))
            return
        self.ledger.connects += 1
        subscribe(client, self.part)

    def _on_subscribe(self, _client: mqtt.Client, _data: Any, _mid: int, codes: list[ReasonCode], _p: Any) -> None:
        self.subscribed = not any(code.is_failure for code in codes)

    def _on_disconnect(
        self, _client: mqtt.Client, _data: Any, flags: Any, code: ReasonCode, props: Properties | None
    ) -> None:
        if self.subscribed and not self.orders.stop.is_set():
            self.ledger.lost_connections += 1
        self.subscribed = False
        if flags.is_disconnect_packet_from_server:
            self.ledger.told.setdefault(words(code, props))

    def _on_message(self, _client: mqtt.Client, _data: Any, message: mqtt.MQTTMessage) -> None:
        self.ledger.enter(message)

    # -- what it does -----------------------------------------------------------------------------------------------

    def run(self) -> None:
        connect(self.client, self.part)
        if not loop_until(self.client, lambda: self.subscribed):
            say(ActorReport("failed", f"{self.part.name} could not subscribe: {'; '.join(self.ledger.told)}"))
            return
        say(ActorReport("ready"))
        self.behave()
        say(self.ledger.done())
        self.client.disconnect()

    def behave(self) -> None:
        while not self.stopping() and self.subscribed:
            self.client.loop(TURN_S)
            self.tell()
        self.wait_for_stop()

    # -- the means --------------------------------------------------------------------------------------------------

    def stopping(self) -> bool:
        return self.orders.stop.is_set()

    def tell(self) -> None:
        """A live report when one is due."""
        now = time.monotonic()
        if now - self._told_s >= REPORT_EVERY_S:
            self._told_s = now
            say(self.ledger.live())

    def read_for(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.subscribed and not self.stopping():
            self.client.loop(TURN_S)
            self.tell()

    def pause(self, seconds: float) -> None:
        """Do not read; still report."""
        end = time.monotonic() + seconds
        while not self.stopping() and (left := end - time.monotonic()) > 0:
            self.orders.stop.wait(min(left, REPORT_EVERY_S))
            self.tell()

    def wait_for_stop(self) -> None:
        while not self.stopping():
            self.pause(REPORT_EVERY_S)

    def drain(self) -> None:
        """Read what is there, up to the broker's last word."""
        loop_until(self.client, lambda: not self.subscribed, DRAIN_S)


class Stalled(Consumer):
    """Stops reading its socket, without a word."""

    def behave(self) -> None:
        while not self.ledger.records and not self.stopping():
            self.client.loop(TURN_S)
            self.tell()
        self.read_for(cast.STALL_AFTER_S)
        self.wait_for_stop()
        self.drain()


class Trickling(Consumer):
    """Reads one record at a time, with a pause after each: a few KB a second."""

    def behave(self) -> None:
        while not self.stopping() and self.subscribed:
            self.client.loop_read()
            self.pause(1 / cast.TRICKLE_RECORDS_PER_S)
        self.wait_for_stop()


class LateAcknowledging(Consumer):
    """Takes what its window allows, and acknowledges each seconds later."""

    receive_maximum = cast.RECEIVE_MAXIMUM
    manual_ack = True

    def __init__(self, part: Role, orders: Orders) -> None:
        super().__init__(part, orders)
        self._owed: deque[tuple[float, int, int]] = deque()

    def _on_message(self, client: mqtt.Client, data: Any, message: mqtt.MQTTMessage) -> None:
        super()._on_message(client, data, message)
        self._owed.append((time.monotonic() + cast.ACK_AFTER_S, message.mid, message.qos))

    def behave(self) -> None:
        while not self.stopping() and self.subscribed:
            self.client.loop(TURN_S)
            while self._owed and self._owed[0][0] <= time.monotonic():
                _, mid, qos = self._owed.popleft()
                self.client.ack(mid, qos)
            self.tell()
        self.wait_for_stop()


class Flapping(Consumer):
    """Reads for a while, then not at all; when it is thrown out it comes straight back and does it again."""

    def behave(self) -> None:
        while not self.stopping():
            if self.subscribed:
                self.read_for(cast.FLAP_READS_S)
                self.pause(cast.FLAP_STALLS_S)
                self.read_for(cast.FLAP_READS_S)
            else:
                self._knock()

    def _knock(self) -> None:
        self.client = self._make_client()
        try:
            connect(self.client, self.part)
        except OSError:
            self.pause(KNOCK_AGAIN_S)
            return
        refusals = self.ledger.refusals
        loop_until(self.client, lambda: self.subscribed or self.ledger.refusals > refusals or self.stopping())
        if not self.subscribed:
            self.pause(KNOCK_AGAIN_S)


class Overworked(Consumer):
    """Reads all the time, but each record costs it work, and it wants them all."""

    def _on_message(self, client: mqtt.Client, data: Any, message: mqtt.MQTTMessage) -> None:
        super()._on_message(client, data, message)
        self.orders.stop.wait(cast.SLOW_WORK_S)


BEHAVIOURS: dict[Behaviour, type[Consumer]] = {
    Behaviour.HEALTHY: Consumer,
    Behaviour.STALL: Stalled,
    Behaviour.TRICKLE: Trickling,
    Behaviour.ACK_LATE: LateAcknowledging,
    Behaviour.FLAP: Flapping,
    Behaviour.OVERWORKED: Overworked,
}


def _small_buffer(_client: mqtt.Client, _data: Any, sock: Any) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)


def play(part: Role, orders: Orders) -> None:
    assert part.behaviour is not None
    BEHAVIOURS[part.behaviour](part, orders).run()


if __name__ == "__main__":
    main(play)
