"""What clients and the broker say to each other when connections and channels begin and end."""

from __future__ import annotations

from typing import Any

from pamqp.commands import Basic, Channel, Connection
from tests.server.amqp_stage import OPENINGS, Client, message

from headway.core.base.errors import Reason
from headway.core.consumer.effects import CloseChannel

OPENING = OPENINGS["0-9-1"]
START_OK = Connection.StartOk({}, "PLAIN", "\0guest\0guest")
TUNE_OK = Connection.TuneOk(0, 0, 0)
OPEN = Connection.Open()
CLOSE = Connection.Close(200, "bye", 0, 0)
STARTED = ["Connection.Start"]
TUNED = [*STARTED, "Connection.Tune"]
OPENED = [*TUNED, "Connection.OpenOk"]
BYE = Channel.Close(200, "bye", 0, 0)
MISTAKE = Basic.Ack(99)
LONG = bytes(b"x" * 6000)
PARTS = message(1, "q", LONG)


def close_by_effect(client: Client, channel: int = 1, core: Any = None) -> list[str]:
    """As the governor has it. ``core``: of a channel that is closed already."""
    peer = client.peer
    assert peer.session is not None
    effect = CloseChannel(peer.session, core or peer.channels[channel].core, Reason.LAG_AGE, "too slow")
    client.house.broker.registry.effects.append(effect)
    client.house.turn_soon()
    client.run()
    return client.new()
