"""Held rights: the rights of one session, and by which rights what stands of it was judged last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headway.core.log import Tab
from headway.core.permission import ALL_RIGHTS, Rights


class RightsSource:
    """Gives sessions their rights. A reload replaces those of all sessions at once: each session takes its new ones
    when its rights are next asked for."""

    __slots__ = ("rights_of", "version")

    def __init__(self) -> None:
        self.version = 0
        """Rises with each reload of the permissions."""
        self.rights_of: Callable[[Any], Rights] = lambda session: ALL_RIGHTS
        """Returns the rights of a session. (This file knows no sessions.)"""

    def replace(self, rights_of: Callable[[Any], Rights]) -> None:
        self.rights_of = rights_of
        self.version += 1


NO_SOURCE = RightsSource()
"""That of sessions that are no client's."""


class HeldRights:
    __slots__ = ("_source", "_version", "being_cleared", "judged_by", "last")

    def __init__(self, source: RightsSource) -> None:
        self.last: Rights = ALL_RIGHTS
        """The rights that the session had when they were last asked for."""
        self.judged_by: Rights = ALL_RIGHTS
        """The rights that allow everything that stands: subscriptions, wills and bindings. All rights: everything was
        allowed when it was made, or it is not known by which rights it was judged."""
        self.being_cleared = False
        """Set while subscriptions that were revoked end, over several turns."""
        self._source = source
        self._version = source.version

    def of(self, session: object, tab: Tab) -> Rights:
        """Returns the rights that the session has now."""
        if self._version != self._source.version:
            self.grant(self._source.rights_of(session), tab)
        return self.last

    def grant(self, rights: Rights, tab: Tab) -> None:
        """Replaces the rights, and forgets the answers of the old ones. What stands is judged later
        (core/clients/revoking.py)."""
        old = self.last
        self._version = self._source.version
        if old is not ALL_RIGHTS and rights.same_as(old):
            if self.judged_by is old:
                self.judged_by = rights
        elif self.judged_by is not old:
            self.judged_by = ALL_RIGHTS  # what was made under the old rights was not judged by the ones before
        old.forget()
        self.last = rights
        rights.count_on(tab)
