"""Quotas: so many cursors, and so many writers, each user has and no more. What they pin is on the broker's disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headway.server.http.bodies import Refusal


class Quota:
    """``there``: whether there still is one of this name; it is asked only of who has reached the limit."""

    def __init__(self, most: int, setting: str, give_up: str, there: Callable[[str], bool]) -> None:
        self._most = most
        self._setting = setting
        self._give_up = give_up
        self._there = there
        self._users: dict[str, str] = {}
        """By name: whose it is."""
        self._names: dict[str, dict[str, None]] = {}
        """By user."""

    def restore(self, owned: Iterable[tuple[str, str]]) -> None:
        """Names and users, from before the process began: however many there are."""
        for name, user in owned:
            self._own(name, user)

    def take(self, name: str, user: str) -> None:
        """Counts it as this user's from now on. Raises Refusal."""
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
