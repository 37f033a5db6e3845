"""Permissions: all rules of a configuration. They say what rights a user's client has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from headway.core.permission.denials import Denials
from headway.core.permission.grants import Grants
from headway.core.permission.identity import Identity
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
        self._grants: dict[tuple[str, tuple[str, ...]], Grants] = {}
        self._gone: frozenset[str] = frozenset()

    def rights(self, identity: Identity, client: str) -> Rights:
        """Returns the rights of a client."""
        return Rights(identity, client, self.grants(identity), self._denials)

    def grants(self, identity: Identity) -> Grants:
        user = identity.user
        if user in self._gone and not identity.elsewhere:
            return Grants(user, ())
        key = user, identity.groups
        known = self._grants.get(key)
        if known is None:
            if len(self._grants) >= USERS_MAX:
                self._grants.clear()
            rules = [rule for rule in self._rules if self._applies(rule, identity)]
            known = self._grants[key] = Grants(user, rules)
        return known

    def admin(self, identity: Identity, word: str) -> bool:
        """Tells whether a user may ``read`` or ``change`` at the admin API. Who may change may read."""
        granted = self.grants(identity).sets.get(Operation.ADMIN)
        return granted is not None and bool({word, "change"} & set(granted.filters))

    def forget_users(self, gone: Iterable[str]) -> None:
        """Grants nothing to users that are no more, whatever the rules say of their names. Those stay for
        whom something else vouches."""
        self._gone = frozenset(gone)

    def _applies(self, rule: Permission, identity: Identity) -> bool:
        user = identity.user
        if rule.user is not None:
            return bool(user) and rule.user == user
        if rule.group is not None:
            return bool(user) and (rule.group in identity.groups or user in self._groups.get(rule.group, ()))
        return True
