"""Clients that are reset right behind some bytes: the loop tells of these bytes, and never again."""

from __future__ import annotations

import errno

import pytest
from bench.wires.packets import connect, encode_publish
from tests.server.amqp_stage import House
from tests.server.pretended import Socket

from headway.server.engine.supervision import QUIET_S
from headway.server.mqtt.peer import MqttPeer


class Reset(Socket):
    """It is not readable any more, as far as the loop says."""

    gone = False

    def recv(self, most: int) -> bytes:
        if self.gone and not self.incoming:
            raise ConnectionResetError(errno.ECONNRESET, "reset")
        return super().recv(most)


@pytest.mark.parametrize("gone", [True, False])
def test_a_client_without_keep_alive_is_not_kept_for_ever(gone: bool) -> None:
    house = House('[listeners.mqtt]\nurl = "mqtt://127.0.0.1:0"\n')
    sock = Reset()
    connection = house.accept(sock, "mqtt", MqttPeer)
    sock.incoming.append(connect("quiet", 4, keep_alive_s=0))
    house.run()
    house.pass_time(10 * QUIET_S)
    assert connection.open
    sock.incoming.append(encode_publish("t", b"x"))
    sock.gone = gone
    house.pass_time(2 * QUIET_S)
    assert connection.open is not gone
    assert len(house.broker.registry.sessions) == (0 if gone else 1)
