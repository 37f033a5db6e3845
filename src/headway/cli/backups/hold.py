"""A hold: a broker's promise to remove no file of its journal, for as long as its answer is open."""

from __future__ import annotations

import http.client
import threading
from http.client import HTTPResponse

import msgspec

from headway.cli.admin import AdminClient
from headway.core.base import ConfigError
from headway.store.backup import BadBackup, Contents

HELD_S = 60.0
"""Time in which a broker that holds its journal says so again."""


class Hold:
    def __init__(self, broker: AdminClient) -> None:
        """Raises ConfigError."""
        self._answer: HTTPResponse = broker.hold_journal()
        try:
            self.contents = msgspec.json.decode(self._answer.readline(), type=Contents)
        except (OSError, http.client.HTTPException, msgspec.MsgspecError) as error:
            raise ConfigError(f"the broker at {broker.url} does not list its journal's files: {error}") from None
        self._ended = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *_: object) -> None:
        """Lets the broker go on removing files. Waits until the thread that listens has heard from it once more."""
        self._ended.set()
        self._answer.close()

    @property
    def ended(self) -> bool:
        """Whether the broker may have removed files by now."""
        return self._ended.is_set()

    def check(self) -> None:
        """Raises BadBackup if the broker does not hold the files any more."""
        if self.ended:
            raise BadBackup("its broker stopped, or broke the connection, before all was copied")

    def _listen(self) -> None:
        """Reads what shows that the files are held. Runs in a thread."""
        try:
            while self._answer.read(1):
                pass
        except (OSError, ValueError, AttributeError, http.client.HTTPException):
            pass  # the same as the end
        self._ended.set()
