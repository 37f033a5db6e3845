"""One client over each protocol that comes for a state and for what changes it (``atomic_stories``)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import starmap
from typing import Any

from tests.interop.atomic_stories import LIVE, TOPIC, Feed, Seen, Truth, checked
from tests.interop.process import BrokerProcess
from tests.interop.state_readers import READERS, Reader
from tests.interop.test_interop_events import Stream
from tests.interop.waiting import PATIENCE_S

from headway.client import Delete, Gap, Key, Put, View

Over = Callable[[BrokerProcess, Truth, int, str], int]


def _seen(user: dict[str, Any], payload: bytes) -> Seen:
    """Reads what a client is told of a record."""
    event = str(user.get("headway-event", ""))
    if event.startswith("snapshot_"):
        return Seen(event, offset=int(user["headway-offset"]), records=int(user.get("headway-records", -1)))
    said = json.loads(payload)
    return Seen(event, said["k"], said["n"], gap=any(name.startswith("headway-gap") for name in user))


def _over(reader: Reader) -> Over:
    def over(broker: BrokerProcess, truth: Truth, base: int, name: str) -> int:
        with reader(broker, "atomic", name, {"snapshot": "true", "marks": "true"}) as told:
            return checked(starmap(_seen, told), truth, base)

    return over


def over_events(broker: BrokerProcess, truth: Truth, base: int, name: str) -> int:
    with closing(Stream(broker, "atomic/#")) as stream:

        def seen() -> Iterator[Seen]:
            for one in stream.events:
                if one.name.startswith("snapshot_"):
                    yield Seen(one.name, offset=one.data["offset"], records=one.data.get("records", -1))
                elif one.name in ("", "delete"):
                    number = json.loads(one.data["payload"])["n"]
                    assert int(one.id) == base + number
                    yield Seen(one.name, one.data["key"], number)
                else:
                    yield Seen(one.name, gap=True)

        return checked(seen(), truth, base)


def over_view(broker: BrokerProcess, truth: Truth, base: int, name: str) -> int:
    return asyncio.run(asyncio.wait_for(_view(broker, truth, base, name), 2 * PATIENCE_S))


async def _view(broker: BrokerProcess, truth: Truth, base: int, name: str) -> int:
    """The image is the truth as of an update, as of that which the view says or later, and then each change comes."""
    url = f"mqtt://127.0.0.1:{broker.ports['mqtt']}"
    async with View(url, "atomic/#", key="/k", client_id=name, lease="2m") as view:
        changes = view.changes()
        image = {str(key.key): entry.json()["n"] for key, entry in view.copy().items()}
        said = view.as_of.offset - base
        number = max(said, *image.values())
        while image != truth.state(number) and truth.deletes(number + 1):
            number += 1
        assert image == truth.state(number), f"the view's image is as of no update near {number}; it says {said}"
        upto, due = number + LIVE, _changes(truth, image, number)
        while number < upto:
            for change in await changes.some(100):
                assert not isinstance(change, Gap), change
                if isinstance(change, Put | Delete):
                    number, key = next(due)
                    assert change.key == Key(TOPIC, key), f"{change} came where {number} is due"
                    assert isinstance(change, Delete) == truth.deletes(number)
                    assert isinstance(change, Delete) or change.entry.json()["n"] == number
        return number - said


def _changes(truth: Truth, image: dict[str, int], number: int) -> Iterator[tuple[int, str]]:
    """Yields the updates that change an image; to delete what is not there does not."""
    there = set(image)
    while True:
        number += 1
        key, deletes = truth.update(number)
        if not deletes or key in there:
            yield number, key
        (there.discard if deletes else there.add)(key)


OVER: dict[str, Over] = {
    **{name: _over(reader) for name, reader in READERS.items()}, "server-sent events, http.client": over_events,
    "View": over_view,
}  # fmt: skip


def rounds(broker: BrokerProcess, over: str, count: int, seed: int = 1) -> tuple[int, int]:
    """Has one client come after the other. Returns how many found the state changed while it was sent, and how many
    keys had."""
    feed = Feed(broker, seed)
    with feed.flows() as base:
        truth, changed = feed.truth(), []
        for number in range(count):
            changed.append(OVER[over](broker, truth, base, f"round {number}"))
    return sum(map(bool, changed)), sum(changed)
