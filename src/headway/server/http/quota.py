"""Quotas: the cursors and writers that each user may have. They are limited because they pin records on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headway.server.http.bodies import Refusal


class Quota:
    """A quota of one kind. ``there`` says whether a name still exists; it is asked only when a user is at the limit."""

    def __init__(self, most: int, setting: str, give_up: str, there: Callable[[str], bool]) -> None:
        self._most = most
        self._setting = setting
        self._give_up = give_up
        self._there = there
        self._users: dict[str, str] = {}
        """Owner of each name."""
        self._names: dict[str, dict[str, None]] = {}
        """Names of each user."""

    def restore(self, owned: Iterable[tuple[str, str]]) -> None:
        """Counts names and their users from before this process, even beyond the limit."""
        for name, user in owned:
            self._own(name, user)

    def take(self, name: str, user: str) -> None:
        """Counts a name as this user's. Raises Refusal."""
        if self._users.get(name) == user:
            return
        names = self._names.get(user, {})
        if len(names) >= self._most:
            for one in [one for one in names if not self._there(one)]:
                self.leave(one)
        if len(names) >= self._most:
            who = f"{user} has" if user else "there are"
            text = f"{who} {len(names)} already, and {self._setting} is {self._most}: {self._give_up} gives one up"
            raise Refusal(429, text)
        self.leave(name)
        self._own(name, user)

    def leave(self, name: str) -> None:
        user = self._users.pop(name, None)
        if user is not None:
            del self._names[user][name]

    def _own(self, name: str, user: str) -> None:
        self._users[name] = user
        self._names.setdefault(user, {})[name] = None
