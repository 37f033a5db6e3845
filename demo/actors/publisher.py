"""The publisher: all flights of the year, in order of departure, time sped up."""

from __future__ import annotations

import socket
import time
from collections import Counter, deque
from typing import Any

import paho.mqtt.client as mqtt

from demo.actors.actor import REPORT_EVERY_S, Orders, connect, loop_until, main, make_client, say
from demo.cast import Role
from demo.flights import Flight, NoFlights, due_s, in_order, moment, rows
from demo.reports import ActorReport

TURN_S = 0.004
IN_FLIGHT_MAX = 2000
CONFIRM_TIMEOUT_S = 10.0


class FlightPublisher:
    def __init__(self, part: Role, orders: Orders) -> None:
        self.part = part
        self.orders = orders
        self.flights: list[Flight] = []
        self.client = make_client(part)
        self.client.max_inflight_messages_set(IN_FLIGHT_MAX)
        self.client.on_socket_open = _send_at_once
        self.sent = 0
        self.late_s = 0.0
        self.unconfirmed: deque[mqtt.MQTTMessageInfo] = deque()

    def run(self) -> None:
        try:
            self.flights = in_order(rows())
        except NoFlights as error:
            say(ActorReport("failed", str(error)))
            return
        connect(self.client, self.part)
        if not loop_until(self.client, self.client.is_connected):
            say(ActorReport("failed", "the publisher could not connect"))
            return
        say(ActorReport("ready", total=len(self.flights)))
        while not self.orders.go.wait(0.0):
            self.client.loop(0.05)
        if not self.orders.stop.is_set():
            self._fly()
        self.client.disconnect()

    def _fly(self) -> None:
        flights, confirmed = self.flights, {f"/{carrier}" for carrier in self.part.confirmed}
        first, last = flights[0].minute, flights[-1].minute
        dues = [due_s(flight.minute, self.part.seconds, first, last) for flight in flights]
        start = time.monotonic()
        told = start
        while self.sent < len(flights) and not self.orders.stop.is_set():
            now = time.monotonic()
            while self.sent < len(flights) and dues[self.sent] <= now - start and not self.client.want_write():
                flight = flights[self.sent]
                qos = 1 if flight.topic[-3:] in confirmed else 0
                info = self.client.publish(flight.topic, flight.payload(time.monotonic()), qos)
                if info.rc == mqtt.MQTT_ERR_QUEUE_SIZE:
                    break  # its packet id is still that of a flight nobody has confirmed yet; it is sent next time
                if qos:
                    self.unconfirmed.append(info)
                self.sent += 1
            if self.sent < len(flights):
                self.late_s = max(self.late_s, time.monotonic() - start - dues[self.sent])
            if self.client.loop(TURN_S) != mqtt.MQTT_ERR_SUCCESS:
                say(ActorReport("failed", "the publisher lost its connection", records=self.sent))
                return
            if now - told >= REPORT_EVERY_S:
                told = now
                say(ActorReport("live", records=self.sent, moment=moment(flights[max(0, self.sent - 1)].minute)))
        loop_until(self.client, self._all_confirmed, CONFIRM_TIMEOUT_S)
        topics = Counter(flight.topic for flight in flights[: self.sent])
        missing = len(self.unconfirmed)
        say(ActorReport("done", records=self.sent, topics=dict(topics), late_s=self.late_s, missing=missing))

    def _all_confirmed(self) -> bool:
        while self.unconfirmed and self.unconfirmed[0].is_published():
            self.unconfirmed.popleft()
        return not self.unconfirmed and not self.client.want_write()


def _send_at_once(_client: mqtt.Client, _data: Any, sock: Any) -> None:
    """Without it the kernel holds a lone small packet back for 40 ms, and the latencies would be about that."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


if __name__ == "__main__":
    main(lambda part, orders: FlightPublisher(part, orders).run())
