"""The recorded filters that a topic, or a filter, reads from."""

from __future__ import annotations

from collections.abc import Collection

from headway.core.message import covers, overlaps


class NotRecorded(Exception):
    """Some of the topics that were asked for are not recorded."""

    def __init__(self, topic: str, recorded: Collection[str]) -> None:
        names = ", ".join(recorded) or "nothing (a [[topic]] with keep is; or start the broker with --record)"
        super().__init__(f"{topic} is not recorded; recorded is {names}")


def filters_of(topic: str, recorded: Collection[str]) -> list[str]:
    """Returns the recorded filters that overlap the topic. Raises NotRecorded unless one of them covers it."""
    if not any(covers(filter, topic) for filter in recorded):
        raise NotRecorded(topic, recorded)
    return [filter for filter in recorded if overlaps(filter, topic)]
