"""Permissions: all rules of a configuration. They say what rights a user's client has."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from headway.core.permission.denials import Denials
from headway.core.permission.grants import NOTHING, Grants
from headway.core.permission.identity import Identity
from headway.core.permission.rights import ALL_RIGHTS, Rights
from headway.core.permission.rule import Operation, Permission

USERS_MAX = 10_000
"""Users whose grants are kept at hand; those of others are put together when they connect."""


class Permissions:
    """The rules, and the grants of the users that have connected since they are in force."""

    def __init__(
        self, rules: Sequence[Permission], groups: Mapping[str, Sequence[str]], denials: Denials | None = None
    ) -> None:
        self._rules = tuple(rules)
        self._of_all: list[int] = []
        """The numbers of the rules for everybody."""
        self._of_user: dict[str, list[int]] = {}
        self._of_group: dict[str, list[int]] = {}
        for number, rule in enumerate(self._rules):
            if rule.user is not None:
                self._of_user.setdefault(rule.user, []).append(number)
            elif rule.group is not None:
                self._of_group.setdefault(rule.group, []).append(number)
            else:
                self._of_all.append(number)
        for group, numbers in self._of_group.items():
            for member in dict.fromkeys(groups.get(group, ())):
                self._of_user.setdefault(member, []).extend(numbers)
        self._denials = denials or Denials()
        self._grants: dict[tuple[str, tuple[str, ...]], Grants] = {}
        self._gone: Collection[str] = ()

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
            known = self._grants[key] = Grants(user, self._rules_for(identity))
        return known

    def admin(self, identity: Identity, word: str) -> bool:
        """Tells whether a user may ``read`` or ``change`` at the admin API. Who may change may read."""
        granted = self.grants(identity).sets.get(Operation.ADMIN, NOTHING)
        return not {word, "change"}.isdisjoint(granted.filters)

    def forget_users(self, gone: Collection[str]) -> None:
        """Grants nothing to users that are no more, whatever the rules say of their names. Those stay for
        whom something else vouches."""
        self._gone = gone

    def _rules_for(self, identity: Identity) -> list[Permission]:
        """Returns the rules that apply to a user, in the order of the file."""
        numbers = set(self._of_all)
        if identity.user:
            numbers.update(self._of_user.get(identity.user, ()))
            for group in identity.groups:
                numbers.update(self._of_group.get(group, ()))
        return [self._rules[number] for number in sorted(numbers)]


class NoPermissions(Permissions):
    """Those of a config without any: everybody may do everything, but nobody is an operator by them."""

    def __init__(self) -> None:
        super().__init__((), {})

    def rights(self, identity: Identity, client: str) -> Rights:
        return ALL_RIGHTS

    def admin(self, identity: Identity, word: str) -> bool:
        return False

    def forget_users(self, gone: Collection[str]) -> None:
        pass


NO_PERMISSIONS: Final[Permissions] = NoPermissions()
