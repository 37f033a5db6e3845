"""The board of the view: how late each carrier leaves, as any MQTT client can have it."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import paho.mqtt.client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions
from rich.table import Table
from rich.text import Text

from demo.actors.actor import connect, make_client
from demo.cast import Role
from demo.reports import percentile

TOPIC = "views/delay"
BAR = 40
BAR_MIN = 20.0
"""Minutes of delay that fill it."""


class Carrier(msgspec.Struct):
    """A row of the view."""

    carrier: str
    flights: int
    delay_min: float | None
    """On average; None while none of its flights has left."""
    sent_s: float
    """When its latest flight was published, by the clock that all processes have in common."""


class Board:
    """Subscribed to the view, in a thread of its own: what is so of each carrier, and how old that was when it came."""

    def __init__(self, host: str, port: int) -> None:
        self.rows: dict[str, Carrier] = {}
        self.ages_s: list[float] = []
        part = Role("board-delays", TOPIC, host=host, port=port)
        self._client = make_client(part)
        self._client.on_connect = self._on_connect
        self._client.on_message = self._on_message
        connect(self._client, part)
        self._client.loop_start()

    def _on_connect(self, client: mqtt.Client, _data: Any, _flags: Any, _code: ReasonCode, _p: Any) -> None:
        properties = Properties(PacketTypes.SUBSCRIBE)  # type: ignore[no-untyped-call]
        properties.UserProperty = ("snapshot", "true")
        client.subscribe(TOPIC, options=SubscribeOptions(qos=0), properties=properties)

    def _on_message(self, _client: mqtt.Client, _data: Any, message: mqtt.MQTTMessage) -> None:
        if message.payload:
            row = msgspec.json.decode(message.payload, type=Carrier)
            self.ages_s.append(time.monotonic() - row.sent_s)
            self.rows[row.carrier] = row

    @property
    def flights(self) -> int:
        """All that the rows are made of."""
        return sum(row.flights for row in list(self.rows.values()))

    def age_s(self, share: float) -> float:
        """How old the latest flight of a row was when the row came; of all rows the one at this share."""
        return percentile(sorted(self.ages_s), share)

    def latest(self) -> list[Carrier]:
        """The least punctual first."""
        return sorted(self.rows.values(), key=lambda row: row.delay_min or 0.0, reverse=True)

    def table(self) -> Table:
        table = Table()
        table.add_column("carrier")
        table.add_column("flights", justify="right")
        table.add_column("leaves late by", justify="right")
        table.add_column("on average", min_width=BAR)
        for row in self.latest():
            delay = row.delay_min or 0.0
            bar = "█" * round(BAR * min(1.0, max(0.0, delay) / BAR_MIN))
            table.add_row(Text(row.carrier), f"{row.flights:,}", f"{delay:.1f} min", Text(bar, style="yellow"))
        return table

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()
