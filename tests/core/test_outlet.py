"""A client that is not connected has an outlet too: it can be asked like any other, and no byte is lost in it."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import pytest
from tests.core.stage import STUCK, Stage

from headway.core.base import Reason
from headway.core.consumer.connection.outlet import NO_OUTLET, Outlet


def add_bytes(outlet: Outlet) -> None:
    outlet.out += b"a frame"


def unblock(outlet: Outlet) -> None:
    outlet.blocked = False


SWALLOWING: list[Callable[[Outlet], object]] = [
    add_bytes,
    unblock,
    lambda outlet: outlet.send([b"a frame"], 7),
    lambda outlet: outlet.took(0, 7, 1.0),
    lambda outlet: outlet.wait_writable(),
]


@pytest.mark.parametrize("swallow", SWALLOWING)
def test_a_client_that_is_not_connected_takes_no_bytes(swallow: Callable[[Outlet], object]) -> None:
    with pytest.raises((AssertionError, AttributeError)):
        swallow(NO_OUTLET)
    assert (NO_OUTLET.out, NO_OUTLET.blocked) == (b"", True)


def test_a_client_that_is_not_connected_is_not_slow() -> None:
    stage = Stage()
    client = stage.client("a", reads=STUCK, expiry_s=60)
    client.subscribe("t")
    stage.client("p").publish("t", 0, 100)
    stage.run(2)
    session = client.session
    assert session.connected
    assert session.outlet.blocked_s(stage.now) > 0
    client.leave()
    assert not session.connected
    assert session.outlet.blocked_s(stage.now) == 0
    assert session.outlet.blocked_since_s == inf


def test_nothing_is_offered_to_a_client_that_has_left() -> None:
    stage = Stage()
    client = stage.client("a", expiry_s=60)
    subscription = client.subscribe("t", qos=1)
    client.leave()
    stage.client("p").publish("t", 0, 100)
    stage.turn()
    stage.broker.writable(client.session, stage.now)
    stage.broker.expel(client.session, Reason.ADMIN, "", stage.now)
    assert subscription.lag_records == 100
    assert not client.session.ended, "nobody was there to be expelled"
