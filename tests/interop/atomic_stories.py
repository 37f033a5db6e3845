"""Clients that ask for a state and for what changes it, under load, and what each has to get: the state as of the
offset of its marks, then every record behind that offset, once.

The truth is arithmetic: which key update number *n* has, and whether it deletes it, anybody can work out. As nobody
else publishes, the offset of update *n* is *n* and a constant.
"""

from __future__ import annotations

import json
import random
import threading
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from bench.wires.packets import encode_publish
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw
from tests.interop.state_readers import LISTENERS
from tests.interop.test_interop_state import ask
from tests.interop.waiting import PATIENCE_S, until

from headway.core.message import Properties

CONFIG = LISTENERS + '[[topic]]\nfilter = "atomic/#"\nkey = "/k"\n'
TOPIC = "atomic/feed"
KEYS = 2000
LIVE = 60
"""The least live records that each client reads."""
BATCH, PAUSE_S = 20, 0.01


class Truth:
    """What update number *n* is, and what the state is as of it."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._updates: list[tuple[str, bool]] = []
        self._history: dict[str, list[int]] = {}

    def update(self, number: int) -> tuple[str, bool]:
        """Returns the key of an update, and whether it deletes it. The first ones make all keys."""
        while len(self._updates) <= number:
            at = len(self._updates)
            some = f"k{at}" if at < KEYS else f"k{self._chance.randrange(KEYS)}"
            self._updates.append((some, at >= KEYS and self._chance.random() < 0.1))
            self._history.setdefault(some, []).append(at)
        return self._updates[number]

    def deletes(self, number: int) -> bool:
        return self.update(number)[1]

    def state(self, number: int) -> dict[str, int]:
        """Returns the number of the latest update of each key that is there as of one."""
        self.update(number)
        state = {key: every[max(0, bisect_right(every, number) - 1)] for key, every in self._history.items()}
        return {key: latest for key, latest in state.items() if latest <= number and not self.deletes(latest)}


class Seen(NamedTuple):
    """One thing that a client was told. ``event`` is empty for a record; marks have figures."""

    event: str
    key: str | None = None
    number: int = -1
    offset: int = -1
    records: int = -1
    gap: bool = False


class Feed:
    """A publisher that goes on while clients come, and the truth of what it publishes."""

    def __init__(self, broker: BrokerProcess, seed: int) -> None:
        self.broker, self.seed = broker, seed
        self._truth, self._published = Truth(seed), 0

    def truth(self) -> Truth:
        """Makes the truth once more, for another thread."""
        return Truth(self.seed)

    @contextmanager
    def flows(self) -> Iterator[int]:
        """Publishes until the end of the block. Yields the offset of update 0."""
        over, failed = threading.Event(), list[Exception]()
        with Raw(self.broker.ports["mqtt"], "feed") as writer:
            writer.sock.sendall(b"".join(map(self._frame, range(KEYS))))
            self._published = KEYS
            until(lambda: ask(self.broker, "atomic/#", {"top": 0}).json["keys"] == KEYS, what="all keys are there")
            first = ask(self.broker, "atomic/#", {"top": 1}).json["records"][0]

            def publish() -> None:
                try:
                    while not over.wait(PAUSE_S):
                        some = range(self._published, self._published + BATCH)
                        writer.sock.sendall(b"".join(map(self._frame, some)))
                        self._published += BATCH
                except OSError as error:
                    failed.append(error)

            thread = threading.Thread(target=publish, daemon=True)
            thread.start()
            try:
                yield first["offset"] - json.loads(first["payload"])["n"]
            finally:
                over.set()
                thread.join(PATIENCE_S)
        assert not failed, f"there was no load: {failed}"

    def _frame(self, number: int) -> bytes:
        key, deletes = self._truth.update(number)
        payload = json.dumps({"k": key, "n": number, "filler": "x" * 100}).encode()
        return encode_publish(TOPIC, payload, properties=Properties(user=(("delete", "1"),) if deletes else ()))


def checked(seen: Iterator[Seen], truth: Truth, base: int) -> int:
    """Reads a snapshot and live records. Returns how many keys changed while the snapshot was sent."""
    begin = next(seen)
    assert begin.event == "snapshot_begin", begin
    as_of = begin.offset - base
    state, image = truth.state(as_of), dict[str, int]()
    for one in seen:
        assert not one.gap, one
        if one.event == "snapshot_end":
            break
        assert one.event == "", one
        assert one.key is not None
        assert one.key not in image, f"{one} came twice in the snapshot"
        assert state.get(one.key) == one.number, f"{one}, and as of {as_of} it is {state.get(one.key)}"
        image[one.key] = one.number
    assert (one.event, one.offset, one.records) == ("snapshot_end", begin.offset, len(image))
    left_out = set(state) - set(image)
    follow, number = set(left_out), as_of
    while follow or number < as_of + LIVE:
        one, number = next(seen), number + 1
        key, deletes = truth.update(number)
        assert not one.gap, one
        assert one.number == number, f"{one} came where {number} is due: lost or doubled"
        assert (one.event, one.key) == ("delete" if deletes else "", key)
        follow.discard(key)
        if deletes:
            image.pop(key, None)
        else:
            image[key] = number
    assert image == truth.state(number), f"the image as of {number}, from a snapshot as of {as_of}"
    return len(left_out)
