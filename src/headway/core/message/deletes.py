"""Deletes: records that take their key out of the state of their topic.

A record is a delete if it says so with the user property ``delete``, or if it has no payload and a key (keys.py). Its
subscribers are told with marks, which are written before the record goes into the journal and the lanes (parts.py).
"""

from __future__ import annotations

from operator import eq

from headway.core.message.record import Properties, Record, Run

TOLD = "headway-"
"""The names of the broker's own user properties begin so."""
EVENT = "headway-event"
OUT_OF_FOCUS = "out_of_focus"
"""An event: the key of the record does not match any more."""
"""The user property with which the broker tells what a record is, if it is not an ordinary one."""
DELETE = "delete"
_NO = frozenset({"false", "0", "no", "off"})


def says_delete(properties: Properties) -> bool:
    """Tells whether a record with these properties is a delete, with or without a payload."""
    if not properties.user:
        return False
    return properties.user_value(EVENT) == DELETE or says(properties, DELETE)


def says(properties: Properties, name: str) -> bool:
    """Tells whether a user property is there and has any value but ``false``, ``no``, ``off``, ``0``."""
    said = properties.user_value(name)
    return said is not None and said.lower() not in _NO


def is_delete(record: Record, key: str | None) -> bool:
    """Tells whether a record with this key is a delete."""
    return (not record.payload and key is not None) or says_delete(record.properties)


def may_delete(run: Run) -> bool:
    """Tells whether there may be a delete among the records of a run."""
    return any(map(eq, run.bodies, run.ends)) or says_delete(run.properties)
