"""Views: a client's image of a keyed topic that stays true."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar
from weakref import WeakSet

from headway.client.change_queue import ChangeQueue, ChangeReader
from headway.client.changes import Change, Current, Stale
from headway.client.follower import Follower, ViewError
from headway.client.image import Changes, Image
from headway.client.picture import Picture
from headway.client.request import make_request

# -- view --------------------------------------------------------------------------------------------------------------


OPEN_S = 30.0
NO_LIMIT = 1 << 30
"""The room where nobody reads the changes."""


class View(Picture):
    """The latest record per key of a topic, kept true::

        async with View("mqtt://127.0.0.1:1883", "flights/#", key="/tailnum") as flights:
            flights["N14228"].json()["delay"]
            flights.stale_s, flights.as_of
            async for change in flights.changes():
                ...

    It is a mapping from :class:`Key` to :class:`Entry`, and opens with a whole snapshot. Then it follows the topic.
    When the connection is cut it keeps the last image and says that it is stale; it reconnects by itself, takes a new
    snapshot, puts it in the image's place when it is whole, and tells what has changed.

    In threads: :meth:`View.open`.

    :param url: the broker's listener (broker_address.py).
    :param filter: the topics; one ``[[topic]]`` of the broker has to cover them.
    :param key: the key of that ``[[topic]]``.
    :param selector: only records that match (JMS syntax); a key whose record no longer does goes out of focus.
    :param top: the view is a live page: at most so many records, in the order ``order_by`` (``/delay DESC``), after
        ``skip`` others. What the page loses goes out of focus, and says why. :meth:`in_order` has them in their order.
    :param delta: the broker sends only the fields that change of a key, and the view merges them (docs/STATE.md).
    :param conflate: changes of a key at most this often (``500ms``); ``0s``: as often as the network has room;
        ``off``: every change, also of a topic that the broker conflates for those who say nothing.
    :param policy: a policy of the broker, by name.
    :param patience: for how long a reader of :meth:`changes` may let a change wait (``20m``) without being slow.
    :param lease: the broker ends the subscription so long after it heard last of the view, which renews it by itself.
    :param stale_after: the image counts as stale when it was not confirmed for so long.
    :param max_queued: changes that may wait for a reader of :meth:`changes`.
    :param when_full: ``wait``: the view then stops reading, and its image stands still; the rest waits in the broker.
        ``conflate``: a newer change of a key takes the older one's place before that.
    :raises ConfigError: an argument is wrong. Later errors of the connection raise nothing: ``why_stale`` has them.
    """

    def __init__(self, url: str, filter: str, **terms: Any) -> None:
        self._request = make_request(url, filter, **terms)
        self._readers: WeakSet[ChangeReader] = WeakSet()
        self._follower = Follower(self._request, self._told, self._room)
        self._first = asyncio.Event()
        """Set once there is an image, or the broker has refused the view."""
        self._task: asyncio.Task[None] | None = None

    @staticmethod
    def open(url: str, filter: str, **terms: Any) -> ThreadView:
        """Returns the same view for threads, open: ``with View.open(url, "flights/#") as flights: ...``. It takes the
        arguments of :class:`View`, and its :meth:`changes` is an ordinary iterator. Raises ConfigError, ViewError."""
        from headway.client.view import ThreadView

        return ThreadView(View(url, filter, **terms))

    @property
    def client_id(self) -> str:
        """Returns the name by which the broker knows the view: ``headway why NAME``."""
        return self._request.client_id

    @property
    def _image(self) -> Image:
        return self._follower.image

    # -- opening ----------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Connects, and waits for the first snapshot. Raises ViewError if the broker refuses the view, or if there is
        no image after ``OPEN_S``."""
        self._first = asyncio.Event()
        follower = self._follower = Follower(self._request, self._told, self._room)  # a view may be opened again
        self._task = asyncio.create_task(follower.run(), name=f"headway view of {self._request.filter}")
        try:
            async with asyncio.timeout(OPEN_S):
                await self._first.wait()
        except TimeoutError:
            await self.close()
            text = follower.trouble or "the snapshot is not here yet"
            raise ViewError(f"no image of {self._request.filter} after {OPEN_S:g} s: {text}") from None
        except BaseException:
            await self.close()
            raise
        if follower.refusal is not None:
            await self.close()
            raise ViewError(f"{self._request.address} refuses a view of {self._request.filter}: {follower.refusal}")
        return self

    async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the view. Its last image stays readable, and iterations over its changes end."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.wait([task])
        self._told(self._follower.image.cut("the view is closed"))
        for reader in self._readers:
            reader.close()

    # -- changes ----------------------------------------------------------------------------------------------------

    def changes(self) -> ChangeReader:
        """Returns an asynchronous iterator over what changes from now on; its first item says whether the image is
        current. The image is as of the last change that was *queued*, so it may be ahead of what is read here.

        Each reader has its own queue of ``max_queued`` changes, and the view waits for the slowest reader; one that is
        dropped counts no more."""
        image, conflate = self._image, self._request.when_full == "conflate"
        reader = ChangeReader(ChangeQueue(self._request.max_queued, conflate=conflate), self._make_room)
        current = image.is_current(time.monotonic())
        reader.add((Current(image.offset) if current else Stale(image.why_stale),))
        if self._task is None:
            reader.close()
        else:
            self._readers.add(reader)
        return reader

    def _told(self, changes: Changes) -> None:
        for reader in self._readers:
            reader.add(changes)
        if self._image.true_s is not None or self._follower.refusal is not None:
            self._first.set()

    def _room(self) -> int:
        return min((room for reader in self._readers if (room := reader.room) is not None), default=NO_LIMIT)

    def _make_room(self) -> None:
        self._follower.make_room()


# -- thread view -------------------------------------------------------------------------------------------------------
#
# Views in threads: a view on an asyncio loop in a thread of its own, read from any other.


T = TypeVar("T")
AT_ONCE = 256
"""Changes that are handed to another thread at once."""


class ThreadView(Picture):
    """A view for threads; :meth:`View.open` makes it::

        with View.open("mqtt://127.0.0.1:1883", "flights/#", key="/tailnum") as flights:
            flights["N14228"]
            for change in flights.changes():
                ...

    One entry is always whole. For several that belong together take a :meth:`copy`: the view goes on meanwhile.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._request = view._request
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="headway-view", daemon=True)
        self._thread.start()
        self._open = True
        try:
            self._call(view.__aenter__())
        except BaseException:
            self._stop()
            raise

    @property
    def _image(self) -> Image:
        return self._view._image

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Ends the view. Its last image stays readable, and iterations over its changes end."""
        if self._open:
            self._open = False
            self._call(_end(self._view))
            self._stop()

    def changes(self) -> Iterator[Change]:
        """Returns an iterator over what changes from now on, which waits for changes and ends with the view; see
        :meth:`View.changes`."""
        if not self._open:
            return iter(())
        return self._changes(self._call(_reader(self._view)))

    def _changes(self, reader: ChangeReader) -> Iterator[Change]:
        while self._open:
            try:
                some = self._call(reader.some(AT_ONCE))
            except RuntimeError:  # the view was closed at this moment
                return
            if not some:
                return
            yield from some

    def _call(self, what: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the view's loop and waits for it. Raises RuntimeError if the loop has ended."""
        try:
            return asyncio.run_coroutine_threadsafe(what, self._loop).result()
        except RuntimeError:
            what.close()
            raise

    def _stop(self) -> None:
        self._open = False
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _reader(view: View) -> ChangeReader:
    return view.changes()


async def _end(view: View) -> None:
    """Closes the view, and returns when all that wait for its changes have been told."""
    await view.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others)
