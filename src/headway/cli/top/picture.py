"""A picture: the broker's figures at one moment."""

from __future__ import annotations

import json
import time
from typing import Any, NamedTuple

from headway.cli.admin import AdminClient


class Picture(NamedTuple):
    time_s: float
    broker: dict[str, Any]
    consumers: list[dict[str, Any]]
    publishers: list[dict[str, Any]]
    queues: list[dict[str, Any]]

    def json(self) -> str:
        return json.dumps({name: getattr(self, name) for name in self._fields if name != "time_s"}, indent=2)


def take(admin: AdminClient) -> Picture:
    """Asks the broker for all of it. Raises ConfigError."""
    return Picture(time.monotonic(), admin.broker(), admin.consumers(), admin.publishers(), admin.queues())
