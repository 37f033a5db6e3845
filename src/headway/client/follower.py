"""The follower keeps an image true: it connects, subscribes, asks whether the image is current, and comes back.

Theory of operation. Each *beat* sends the same SUBSCRIBE again. The broker renews the lease, and says in its SUBACK how
old the oldest record is that it has not sent: 0 if none waits. What was sent came before the answer, so when the answer
is here, the image was the truth when the question left, less that age. So the image's age is known whatever happens to
the network, the broker, or this process; it grows while no answer comes.

After a cut the view asks for the changes behind its offset, which the broker still has if the topic is recorded. It
says so if it has not, and then there is a new snapshot. A broker that was started again may have lost records that it
had sent, and that are in the image; so offsets count in one life of the broker, which it tells in SUBACK.

Without an answer for ``SILENT_TIMES`` the time after which an image is stale, the connection is given up, but not
before a second look: it may be this process that stood still, and then the answer is here and was not read yet. A
broker that only stood still answers late, and nothing else has to happen.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence

from headway.client.events import read_grant, tell
from headway.client.image import CONFLATED, Changes, Image
from headway.client.link import Link, LinkError, Pairs
from headway.client.request import Request
from headway.core.base import HeadwayError
from headway.core.message import Run, compile_key

SILENT_TIMES = 3
GATHERING_S = 0.05
"""The time between two questions while a snapshot is gathered, whose end the answer tells."""
CONNECT_S = 10.0
GATHERED = 1000
"""Records of a snapshot that may come at a time."""
SNAPSHOT = ("snapshot", "true")
BACKOFF_MIN_S, BACKOFF_MAX_S = 0.1, 30.0


class ViewError(HeadwayError):
    """The broker refuses the view, or cannot be reached when it is opened."""


class Follower:
    def __init__(self, request: Request, told: Callable[[Changes], None], room: Callable[[], int]) -> None:
        """``told`` is called with all changes. ``room``: how many more of them can be taken."""
        self.image = Image(request.stale_after_s, marked=request.order_by is not None)
        self.refusal: str | None = None
        """Why the broker refuses the view; None if it does not."""
        self.trouble = "not connected yet"
        """Why there is no connection; empty if there is one."""
        self._request = request
        self._told = told
        self._room = room
        self._key = compile_key(request.key)
        self._link = Link(request.address, request.client_id, request.receive_max, self)
        self._lost: asyncio.Future[str] | None = None
        self._asked: dict[int, float] = {}
        """SUBSCRIBEs without an answer: when they were sent, by their numbers."""
        self._first: int | None = None
        """The SUBSCRIBE that began the subscription, until it is answered."""
        self._ending: int | None = None
        """The UNSUBSCRIBE after which a new subscription begins."""
        self._life = ""
        """The life of the broker that the image's offsets belong to; empty if it cannot be resumed from them."""
        self._start = SNAPSHOT
        """The option of the subscription that says what comes first."""
        self._asked_s = self._heard_s = 0.0
        self._failures = 0

    async def run(self) -> None:
        """Follows the topic until it is cancelled."""
        try:
            while True:
                wait_s = 0.0
                self._lost = asyncio.get_running_loop().create_future()
                try:
                    await self._link.connect(CONNECT_S)
                    self.trouble = ""
                    self.trouble = await self._follow(self._lost)
                except LinkError as error:
                    self.trouble, wait_s = str(error), error.retry_after_s
                    self.refusal = self.trouble if error.final else None
                self._tell(self.image.cut(self.trouble))
                await asyncio.sleep(max(wait_s, self._backoff_s()))
        finally:
            await self._link.end()

    def _backoff_s(self) -> float:
        """Returns the time until the next attempt: longer after each one that failed, and never the same for all."""
        longest = min(BACKOFF_MAX_S, BACKOFF_MIN_S * 2.0 ** min(self._failures, 16))
        self._failures += 1
        return longest * random.uniform(0.5, 1.0)

    async def _follow(self, lost: asyncio.Future[str]) -> str:
        """Follows the topic over one connection. Returns the reason why it ended."""
        self._asked.clear()
        self._heard_s = time.monotonic()
        self._begin()
        was_silent = False
        while True:
            pause_s = self._request.beat_s if self.image.whole else min(GATHERING_S, self._request.beat_s)
            await asyncio.wait([lost], timeout=pause_s)
            if lost.done():
                return lost.result()
            now = time.monotonic()
            self._tell(self.image.look(now))
            silent_s = self._silent_s(now)
            is_silent = self._room() > 0 and silent_s > SILENT_TIMES * self._request.stale_after_s
            if is_silent and was_silent:
                self._link.close()
                return f"the broker has not answered for {silent_s:.0f} s"
            was_silent = is_silent
            self._beat(now)
            self.make_room()

    def _silent_s(self, now: float) -> float:
        """Returns for how long the broker has owed an answer."""
        oldest = next(iter(self._asked.values()), now if self._ending is None else self._asked_s)
        return now - max(self._heard_s, oldest)

    # -- asking -----------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._ending = None
        if self._life and not self.image.wants_snapshot and self._request.order_by is None:
            self.image.resume()
            self._start = ("from", str(self.image.offset))
        else:
            self.image.begin()
            self._start = SNAPSHOT
        self._first = self._ask()

    def _ask(self) -> int | None:
        request = self._request
        self._asked_s = time.monotonic()  # before it goes out, or an answer could pass for younger than it is
        number = self._link.subscribe(request.filter, request.qos, (*request.options, self._start))
        if number is not None:
            self._asked[number] = self._asked_s
        return number

    def _beat(self, now: float) -> None:
        """Asks again if the last question was answered, or the lease needs it."""
        if self._ending is None and (not self._asked or now - self._asked_s > self._request.lease_s / 3):
            self._ask()

    def _begin_anew(self) -> None:
        """Ends the subscription, for a change is missing, and begins another when that is confirmed."""
        if self._ending is None:
            self._asked.clear()
            self._asked_s = time.monotonic()
            self._ending = self._link.unsubscribe(self._request.filter)

    def make_room(self) -> None:
        """Reads on, or reads no more, as there is room for changes."""
        self._link.go_on()

    # -- what comes -------------------------------------------------------------------------------------------------

    def room(self) -> int:
        """Returns how many records may come. Those of a snapshot that is gathered are no changes yet."""
        room = self._room()
        return max(room, GATHERED) if room and not self.image.whole else room

    def received(self, runs: Sequence[Run]) -> None:
        self._heard_s = time.monotonic()
        if self._ending is not None:
            return
        try:
            changes = tell(self.image, runs, self._key, deltas=self._request.delta)
        except ValueError as error:
            self._fail(str(error))
            return
        if changes:
            self._told(changes)
        if self.image.wants_snapshot:
            self._begin_anew()

    def granted(self, number: int, refusal: str, user: Pairs) -> None:
        now = self._heard_s = time.monotonic()
        sent_s = self._asked.pop(number, None)
        if sent_s is None:
            return
        if refusal:
            self._refuse(refusal)
            return
        try:
            grant = read_grant(user)
        except ValueError as error:
            self._refuse(str(error))
            return
        if number == self._first:
            self._first = None
            if not grant.keyed:
                self._refuse(f"no [[topic]] with key {self._request.key!r} covers {self._request.filter}")
                return
            if self._start is not SNAPSHOT and grant.life != self._life:
                self._life = ""
                self._begin_anew()
                return
            self.image.granted(grant.last)
        elif not grant.renewed:
            self._tell(self.image.cut("the lease of its subscription had run out"))
            self._begin_anew()
            return
        if grant.gap is not None and grant.gap.reason != CONFLATED:  # the next record tells of that one
            self._tell(self.image.gap(grant.gap))
        if self.image.wants_snapshot:
            self._begin_anew()
        elif grant.sent is not None:
            self._failures, self.refusal = 0, None
            self._tell(self.image.proved(grant.sent, sent_s, now))
            if self.image.whole:
                self._life = grant.life

    def ended(self, number: int) -> None:
        self._heard_s = time.monotonic()
        if number == self._ending:
            self._begin()

    def lost(self, why: str) -> None:
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(why)

    def _refuse(self, why: str) -> None:
        self.refusal = why
        self._fail(why)

    def _fail(self, why: str) -> None:
        self._link.close()
        self.lost(why)

    def _tell(self, changes: Changes) -> None:
        self._told(changes)
        self.make_room()
