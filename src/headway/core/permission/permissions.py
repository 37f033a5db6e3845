"""Permissions: all rules of a configuration. They say what rights a user's client has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from headway.core.permission.denials import Denials
from headway.core.permission.grants import Grants
from headway.core.permission.rights import Rights
from headway.core.permission.rule import Operation, Permission

USERS_MAX = 10_000
"""Users whose grants are kept at hand; those of others are put together when they connect."""


class Permissions:
    """The rules, and the grants of the users that have connected since they are in force."""

    def __init__(
        self, rules: Sequence[Permission], groups: Mapping[str, Sequence[str]], denials: Denials | None = None
    ) -> None:
        self._rules = tuple(rules)
        self._groups = {name: frozenset(members) for name, members in groups.items()}
        self._denials = denials or Denials()
        self._grants: dict[str, Grants] = {}
        self._gone: frozenset[str] = frozenset()

    def rights(self, user: str, client: str, *, certified: bool = False) -> Rights:
        """Returns the rights of a client. ``user`` is empty if the client gave no name that was checked; ``certified``:
        its certificate has the name."""
        return Rights(user, client, self.grants(user, certified=certified), self._denials, certified=certified)

    def grants(self, user: str, *, certified: bool = False) -> Grants:
        if user in self._gone and not certified:
            return Grants(user, ())
        known = self._grants.get(user)
        if known is None:
            if len(self._grants) >= USERS_MAX:
                self._grants.clear()
            known = self._grants[user] = Grants(user, [rule for rule in self._rules if self._applies(rule, user)])
        return known

    def admin(self, user: str, word: str, *, certified: bool = False) -> bool:
        """Tells whether a user may ``read`` or ``change`` at the admin API. Who may change may read."""
        granted = self.grants(user, certified=certified).sets.get(Operation.ADMIN)
        return granted is not None and bool({word, "change"} & set(granted.filters))

    def forget_users(self, gone: Iterable[str]) -> None:
        """Grants nothing to users that are no more, whatever the rules say of their names. Those stay whose
        certificates have these names."""
        self._gone = frozenset(gone)

    def _applies(self, rule: Permission, user: str) -> bool:
        if rule.user is not None:
            return bool(user) and rule.user == user
        if rule.group is not None:
            return bool(user) and user in self._groups.get(rule.group, ())
        return True
