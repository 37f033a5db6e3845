"""What goes wrong with accepting: the connections behind it are taken, and nothing is tried in a circle."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from tests.server.amqp_stage import House

from headway.server.config import TlsContext
from headway.server.http import HttpListener
from headway.server.listener import Listener
from headway.server.transport import Handshakes
from headway.server.transport.byte_stream import ACCEPTS_LEAST, ACCEPTS_PER_TURN, RETRY_S

OF_ONE = (errno.ECONNABORTED, errno.EPERM, errno.EPROTO, errno.ENETDOWN, errno.EHOSTUNREACH, errno.ENETUNREACH)
"""A connection was lost, or kept out, before it was accepted."""
OF_ALL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EINVAL, errno.EIO)


class Door:
    """A listening socket, and what each call of ``accept`` meets."""

    def __init__(self, *waiting: int) -> None:
        self.waiting = deque(waiting)
        """Errors; 0: a connection. The last error stays."""
        self.stays = 0
        self.asked = 0

    @property
    def incoming(self) -> bool:
        return bool(self.waiting or self.stays)

    shut = writable = False

    def accept(self) -> tuple[Visitor, tuple[str, int]]:
        self.asked += 1
        number = self.waiting.popleft() if self.waiting else self.stays
        if number:
            raise OSError(number, os.strerror(number))
        return Visitor(), ("127.0.0.1", 1)

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", 1883

    def fileno(self) -> int:
        return 3

    def listen(self, backlog: int) -> None: ...


Listen = Callable[[House, Door], "Guests"]


class Visitor:
    """A socket that was accepted."""

    def setblocking(self, _: bool) -> None: ...

    def setsockopt(self, *_: int) -> None: ...


class Guests:
    """Counts who is let in."""

    welcomed = 0

    def _welcome(self, sock: object, address: str) -> None:
        self.welcomed += 1


class Plain(Guests, Listener): ...


class Https(Guests, HttpListener): ...


@pytest.fixture(params=[Plain, Https])
def listen(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Listen:
    """Either listener, behind a door."""

    def listen(house: House, door: Any) -> Guests:
        if request.param is Https:
            return Https(door, Handshakes(house.loop), house.pulse, asyncio.Protocol, TlsContext(None, ""))
        monkeypatch.setattr("headway.server.listener.bound", lambda *_: door)
        plain = Plain(house, "amqp", house.settings.listeners["amqp"])
        plain.open()
        return plain

    return listen


@pytest.mark.parametrize("number", OF_ONE, ids=errno.errorcode.get)
def test_a_connection_that_was_lost_at_the_door_is_passed_over(
    number: int, listen: Listen, caplog: pytest.LogCaptureFixture
) -> None:
    house = House()
    guests = listen(house, Door(0, number, 0, number, number, 0, errno.EAGAIN))
    house.run()
    assert guests.welcomed == 3
    assert not caplog.records


@pytest.mark.parametrize("number", OF_ALL, ids=errno.errorcode.get)
def test_whatever_else_is_wrong_is_said_and_tried_again_after_a_moment(
    number: int, listen: Listen, caplog: pytest.LogCaptureFixture
) -> None:
    house, door = House(), Door(0)
    guests = listen(house, door)
    door.stays = number
    house.run()
    assert (guests.welcomed, door.asked) == (1, 2), "it is not asked again at once"
    house.pass_time(2.1 * RETRY_S)
    assert door.asked == 4
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 3
    assert os.strerror(number) in caplog.text
    assert ("ulimit" in caplog.text) == (number in (errno.EMFILE, errno.ENFILE))
    door.stays = 0
    door.waiting += [0, 0, errno.EAGAIN]
    house.pass_time(RETRY_S)
    assert guests.welcomed == 3


def test_one_turn_accepts_some_however_many_come(listen: Listen) -> None:
    house, door = House(), Door(*[errno.EPERM] * 1000, *[0] * 1000, errno.EAGAIN)
    listen(house, door)
    house.pretended.once()
    assert door.asked <= ACCEPTS_PER_TURN


def test_all_listeners_together_accept_some_in_a_turn_and_each_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    house, doors = House(), [Door(*[0] * 1000, errno.EAGAIN) for _ in range(5)]
    for door in doors:
        monkeypatch.setattr("headway.server.listener.bound", lambda *_, door=door: door)
        Plain(house, "amqp", house.settings.listeners["amqp"]).open()
    before = [0] * 5
    for _ in range(10):
        house.pretended.once()
        now = [door.asked for door in doors]
        of_this_turn = [after - asked for after, asked in zip(now, before, strict=True)]
        assert sum(of_this_turn) <= ACCEPTS_PER_TURN + 5 * ACCEPTS_LEAST
        before = now
    assert min(before) >= 5 * ACCEPTS_LEAST
    assert sum(before) >= 5 * ACCEPTS_PER_TURN
