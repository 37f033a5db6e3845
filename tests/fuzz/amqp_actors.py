"""Actors: AMQP clients that take steps, and judge by what they have said and heard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pamqp import base
from pamqp.commands import Basic, Channel
from tests.fuzz.amqp_watch import Life, Watch
from tests.server.amqp_stage import ABLE, Client, message, method

if TYPE_CHECKING:
    from tests.fuzz.amqp_world import World


class Step(NamedTuple):
    what: str
    who: int = 0
    channel: int = 1
    number: int = 0
    """Which of several."""
    waits: bool = True
    """For what comes of it; else the next is said in the same breath."""


class Actor:
    """A client that takes steps. When its connection is over the next step is on a new one."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.name = f"actor {number}"
        self.breath = b""
        """What was not said yet."""
        self.connect()

    def connect(self) -> None:
        able = bool(self.world.drawn() % 2)
        self.watch = Watch(self.world.bodies, self.world.heard, able=able)
        self.client = Client(self.world.house, self.name, able=ABLE if able else (), channels=0)
        self.client.sock.capacity = 5000
        self.at = len(self.client.heard)
        self.left = False
        """It has hung up itself."""
        self.breath = b""

    @property
    def gone(self) -> bool:
        return self.watch.over or not self.client.open

    # -- out --------------------------------------------------------------------------------------------------------

    def say(self, channel: int, *commands: base.Frame) -> None:
        for command in commands:
            self.watch.says(channel, command)
            self.breath += method(channel, command)

    def breathe(self) -> None:
        """Say what there is to say, in pieces; hear what comes of it."""
        data, self.breath = self.breath, b""
        if self.client.open:
            while data:
                size = next(self.world.sizes)
                self.client.sock.incoming.append(data[:size])
                data = data[size:]
        self.world.house.run()

    def hear(self) -> None:
        """Also at the end of a turn somebody else is the cause of."""
        if not self.client.reads:
            return
        self.client.run()
        for channel, item in self.client.heard[self.at :]:
            self.watch.hears(channel, item)
        self.at = len(self.client.heard)
        assert self.client.open or self.left or self.watch.over, "it was hung up on without a word"
        if self.up_to_date:
            self.watch.rest()

    @property
    def up_to_date(self) -> bool:
        """Nothing is on its way, in either direction."""
        client = self.client
        out = self.breath or client.sock.incoming or client.connection.reading_paused_by
        return client.open and client.reads and not out and not client.connection.blocked

    def life(self, channel: int, *, grants: bool = True) -> Life:
        """The channel, opened if need be."""
        life = self.watch.lives.get(channel)
        if life is not None and life.closing and life.asked:
            self.client.reads = True
            self.world.settle()
            life = self.watch.lives.get(channel)
        if life is not None and life.closed and grants:
            self.say(channel, Channel.CloseOk())
            life = None
        if life is None and not self.gone:
            self.say(channel, Channel.Open())
        return self.watch.lives.get(channel) or Life()

    def finish(self, channel: int, life: Life) -> None:
        """What was said in part is said to its end."""
        self.breath += b"".join(life.rest)
        life.rest = []

    def publish(
        self, channel: int, key: str, exchange: str = "", *, size: int = 10, parts: int = 99, **more: Any
    ) -> None:
        text = f"{next(self.world.numbers)} ".encode().ljust(size, b".")
        frames = message(channel, key, text, exchange, **more)
        life = self.watch.lives[channel]
        life.said.add(Basic.Publish.index)
        self.breath += b"".join(frames[:parts])
        life.rest = frames[parts:]
        if not life.closed:
            self.watch.publishes(channel, key, text, mandatory="mandatory" in more, immediate="immediate" in more)
