"""The follower of a view beside a link that is made up: when it gives a connection up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from tests.interop.waiting import holds

from headway.client import follower
from headway.client.follower import Follower
from headway.client.link import Pairs
from headway.client.request import make_request

GRANT = (
    ("renewed", "true"), ("keyed", "true"), ("last-offset", "5"), ("sent-offset", "5"), ("age-s", "0"), ("life", "one"),
)  # fmt: skip
STOOD_STILL_S = 60.0


class MadeUp:
    """A follower and its link, whose broker answers each SUBSCRIBE unless it is told not to. ``on_look`` is called
    whenever the follower looks how old its image is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.follower = Follower(
            make_request("mqtt://127.0.0.1:1", "flights/#", stale_after="200ms"), lambda changes: None, lambda: 1
        )
        monkeypatch.setattr(self.follower, "_link", self)
        self.stood_still_s = 0.0
        clock = SimpleNamespace(monotonic=lambda: time.monotonic() + self.stood_still_s)
        monkeypatch.setattr(follower, "time", clock)
        look = self.follower.image.look
        self.on_look: Callable[[], Any] = list
        monkeypatch.setattr(self.follower.image, "look", lambda now: (self.on_look(), look(now))[1])
        self.connections = self.answered = 0
        self.answers = True
        self.stops_s = 0.0
        """The follower is stopped for so long when it has just asked."""
        self.held: list[int] = []
        self._numbers = count(1)

    async def connect(self, within_s: float) -> None:
        self.connections += 1

    def subscribe(self, filter: str, qos: int, options: Pairs) -> int:
        number = next(self._numbers)
        self.stood_still_s += self.stops_s
        self.held.append(number)
        if self.answers:
            asyncio.get_running_loop().call_soon(self.answer)
        return number

    def answer(self) -> None:
        while self.held:
            self.answered += 1
            self.follower.granted(self.held.pop(0), "", GRANT)

    def close(self) -> None: ...

    def go_on(self) -> None: ...

    async def end(self) -> None: ...


def played(made: MadeUp, story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        task = asyncio.create_task(made.follower.run())
        await holds(lambda: made.follower.image.current)
        await story()
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(whole())


def test_view_that_stood_still_itself_reads_what_has_come_before_it_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    made = MadeUp(monkeypatch)

    async def story() -> None:
        made.answers = False
        await holds(lambda: made.held)
        answered, made.stood_still_s = made.answered, STOOD_STILL_S
        made.on_look = lambda: asyncio.get_running_loop().call_soon(made.answer)
        await holds(lambda: made.answered > answered + 1 and made.follower.image.is_current(time.monotonic()))

    played(made, story)
    assert made.connections == 1


def test_view_that_is_owed_nothing_does_not_give_up_after_it_stood_still(monkeypatch: pytest.MonkeyPatch) -> None:
    made = MadeUp(monkeypatch)

    async def story() -> None:
        await holds(lambda: not made.held)
        answered, made.stood_still_s = made.answered, STOOD_STILL_S
        await holds(lambda: made.answered > answered + 1)

    played(made, story)
    assert made.connections == 1


def test_broker_that_says_nothing_any_more_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    made = MadeUp(monkeypatch)

    async def story() -> None:
        made.answers = False
        await holds(lambda: made.held)
        made.stood_still_s = STOOD_STILL_S
        await holds(lambda: made.follower.trouble.startswith("the broker has not answered for 6"))
        made.answers = True
        await holds(lambda: made.follower.image.current)

    played(made, story)
    assert made.connections >= 2


def test_view_renews_its_lease_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same SUBSCRIBE again is what renews it; a view sends that three times within a lease, or more often."""
    made = MadeUp(monkeypatch)

    async def story() -> None:
        answered = made.answered
        await holds(lambda: made.answered > answered + 3)

    played(made, story)
    assert made.connections == 1
    for stale_after, lease in (("200ms", "30s"), ("5s", "6s"), ("29s", "30s")):
        request = make_request("mqtt://127.0.0.1:1", "flights/#", stale_after=stale_after, lease=lease)
        assert ("lease", lease) in request.options
        assert request.beat_s <= request.lease_s / 3


def test_view_that_is_stopped_behind_its_question_takes_the_answer_for_no_younger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broker may have answered at once, and published more meanwhile."""
    made = MadeUp(monkeypatch)

    async def story() -> None:
        answered, made.stops_s = made.answered, STOOD_STILL_S
        made.follower.image.stale_after_s = 2 * STOOD_STILL_S
        await holds(lambda: made.answered > answered)
        now = follower.time.monotonic()
        assert made.follower.image.stale_s(now) >= STOOD_STILL_S

    played(made, story)
