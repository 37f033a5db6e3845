"""Progress: logs every two seconds how far a long start has come."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from headway.core.base import format_size

log = logging.getLogger("headway")

LOG_EVERY_S = 2.0


class RecoveryProgress:
    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._logged_s = now()
        self._checked_bytes = 0

    def checked(self, size: int) -> None:
        """Counts bytes whose checksums are right."""
        self._checked_bytes += size
        self._log(f"{format_size(self._checked_bytes)} are checked")

    def read(self, changes: int) -> None:
        """Reports the number of changes that were read so far."""
        self._log(f"{changes:,} changes of clients, queues and bindings are read")

    def made(self, records: int) -> None:
        """Reports the number of records that were restored so far."""
        self._log(f"{records:,} records are back")

    def _log(self, text: str) -> None:
        if self._now() - self._logged_s > LOG_EVERY_S:
            self._logged_s = self._now()
            log.info("reading the journal: %s", text)
