"""All rights: those of clients that may do everything, as all may where the configuration has no permissions."""

from __future__ import annotations

from typing import Final

from headway.core.log import Tab
from headway.core.permission.denials import Denials
from headway.core.permission.grants import Grants
from headway.core.permission.identity import NOBODY
from headway.core.permission.rights import Rights
from headway.core.permission.rule import Operation


class AllRights(Rights):
    """Allows everything, and remembers nothing."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(NOBODY, "", Grants("", ()), Denials())

    def same_as(self, other: Rights) -> bool:
        return False

    def count_on(self, tab: Tab) -> None:
        return

    def may_publish(self, topic: str, records: int = 1) -> bool:
        return True

    def may(self, operation: Operation, filter: str) -> bool:
        return True

    def covers(self, operation: Operation, filter: str) -> bool:
        return True

    def check_connect(self) -> None:
        return


ALL_RIGHTS: Final = AllRights()
"""The rights of all clients that may do everything."""
