"""Expiry of keys: what was not updated for as long as its ``[[topic]]`` says (``expire``) is deleted by the broker.

The state is in the order of changes, so only its oldest entries are looked at, some at each tick. The broker publishes
a delete for each key, as a client would, so whoever hears of deletes hears of these. Deletes that are as old are not
kept any longer either.
"""

from __future__ import annotations

from headway.core.log import State
from headway.core.message import DELETE, EVENT, TOLD_KEY, Properties, Record, Run
from headway.core.routing.publishing.publishing import Publishing
from headway.core.routing.registry import Registry

EXPIRE_MAX = 500
"""The most keys of one state that expire in one tick."""
EXPIRE_WORK = 4096
"""The most work of that, in the server's units: very many consumers may be told."""


class Expiring:
    def __init__(self, registry: Registry, publishing: Publishing) -> None:
        self._registry = registry
        self._publishing = publishing

    def tick(self, now: float) -> None:
        for state in self._registry.router.expiring:
            left = EXPIRE_WORK
            for record in state.older(now - state.expire_s, EXPIRE_MAX):
                delete = _delete(state, record)
                if not self._publishing.has_room(delete):
                    break  # it is looked at again at the next tick
                left -= self._publishing.announce(delete, now)
                if left <= 0:
                    break


def _delete(state: State, record: Record) -> Run:
    key = state.key_of(record)
    user: tuple[tuple[str, str], ...] = ((EVENT, DELETE),)
    if key is not None:
        name = state.key.property_name
        user = (*(((name, key),) if name else ()), *user, (TOLD_KEY, key))
    user += (("headway-why", "expired"),)
    return Run(record.topic, b"", [0], [0], properties=Properties(user=user), qos=record.qos)
