"""Views in threads: a view on an asyncio loop in a thread of its own, read from any other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from headway.client.change_reader import ChangeReader
from headway.client.changes import Change
from headway.client.image import Image
from headway.client.picture import Picture

if TYPE_CHECKING:
    from headway.client.view import View

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
