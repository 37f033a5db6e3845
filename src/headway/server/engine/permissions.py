"""The permissions in force: what rights clients have, what was denied, and what a reload changes.

Who a client is: ``user`` is a name that was checked (a password, a token, a certificate), never one that is only a
label. A user that a reload removes has no rights any more, unless its certificate says who it is. A denial is in the
log once per client and operation, on record for ``headway why``, and in the metrics each time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import msgspec

from headway.core.base import History, Reason, Refused
from headway.core.broker import Broker
from headway.core.clients import WriterOutlet
from headway.core.consumer import Session
from headway.core.permission import (
    ALL_RIGHTS,
    NO_PERMISSIONS,
    Denial,
    Denials,
    Identity,
    Operation,
    Permission,
    Permissions,
    Rights,
)
from headway.server.config import Settings, users_are_elsewhere
from headway.server.connections import Connection

log = logging.getLogger("headway")

PER_NAME_MAX = 16
NAMES_MAX = 2_000
NAME_CHARS_MAX, TEXT_CHARS_MAX = 200, 500
"""The name of a topic may have 65,535 bytes. More than this is not kept."""


class DeniedRequest(msgspec.Struct, frozen=True):
    """A request that was denied, as ``headway why`` shows it."""

    wall_s: float
    client: str
    user: str
    operation: Operation
    name: str
    text: str


class PermissionsInForce:
    def __init__(self, settings: Settings, broker: Broker) -> None:
        self._broker = broker
        self._denials = Denials(self._denied)
        self._requests: History[DeniedRequest] = History(PER_NAME_MAX, NAMES_MAX)
        self._names = _names(settings)
        self._gone: set[str] = set()
        """Users and tokens that reloads removed, while some session may still be theirs."""
        self._seen: set[str] = set()
        """Those of them whose sessions were judged since the last reload."""
        self.version = 0
        """Rises with each reload."""
        self._take(settings)

    def begin(self, now: float) -> None:
        """Gives rights to the sessions of the journal, and ends what the config does not allow them any more."""
        if self.given:
            self._broker.set_permissions(self._rights_of, now)

    def reload(self, settings: Settings, now: float) -> None:
        """Puts the permissions of these settings in force, also for who is connected. Does nothing if they are as
        before."""
        names = _names(settings)
        gone, self._names = self._names - names, names
        if _wanted(settings) == self._wanted and not gone and not self._gone & names:
            return
        was_given = self.given
        self._gone = (self._gone | gone) - names
        self._seen = set()
        self.version += 1
        self._take(settings)
        # Where there are no permissions, a round still finds out which removed users have a session.
        if was_given or self.given or self._gone:
            self._broker.set_permissions(self._rights_of, now, partial(self._forget_gone, self.version))

    def _take(self, settings: Settings) -> None:
        rules, groups, self._may_be_elsewhere = self._wanted = _wanted(settings)
        self._rules = Permissions(rules, groups, self._denials) if rules else NO_PERMISSIONS
        self._rules.forget_users(self._gone)

    def _forget_gone(self, version: int) -> None:
        """Forgets the names of removed users that no session goes by any more, when all sessions were judged."""
        if version == self.version:
            self._gone &= self._seen

    # -- questions --------------------------------------------------------------------------------------------------

    @property
    def given(self) -> bool:
        """Whether there are permissions; if not, everybody may do everything."""
        return self._rules is not NO_PERMISSIONS

    def check_user(self, identity: Identity) -> None:
        """Raises Refused if a reload has removed the user since it logged in. For work that goes on and has no session:
        a removed user is remembered only as long as sessions are its."""
        if identity.user and not identity.elsewhere and identity.user not in self._names:
            raise Refused(Reason.NOT_AUTHORIZED, f"{identity.user} is no user any more")

    def rights(self, identity: Identity, client: str) -> Rights:
        """Returns the rights of a client."""
        return self._rules.rights(identity, client)

    def check(self, identity: Identity, client: str, operation: Operation, *names: str) -> None:
        """Raises :class:`Refused` unless a user may do this, as this client, with all of these."""
        rights = self.rights(identity, client)
        for name in names:
            if operation is Operation.PUBLISH:
                rights.check_publish(name)
            else:
                rights.check(operation, name)

    def readable(self, identity: Identity, filters: Iterable[str]) -> list[str]:
        """Returns those of the filters that a user may subscribe to."""
        rights = self.rights(identity, "")
        return [one for one in filters if rights.covers(Operation.SUBSCRIBE, one)]

    def may_admin(self, identity: Identity, word: str) -> bool:
        """Returns whether a permission lets a user ``read`` or ``change`` at the admin API."""
        return self._rules.admin(identity, word)

    def deny_admin(self, user: str, word: str) -> None:
        self._denials.add(Operation.ADMIN)

    def _rights_of(self, session: Session) -> Rights:
        outlet, last = session.outlet, session.held.last
        if isinstance(outlet, Connection):
            identity = outlet.peer_side.identity
        elif last is not ALL_RIGHTS:
            identity = last.identity
        elif isinstance(outlet, WriterOutlet):
            return ALL_RIGHTS  # its publication gives it the rights of the batch's user before the next row
        else:
            # The journal does not know what showed its name. Nobody but its user can come back for it.
            identity = Identity(session.username or "", elsewhere=self._may_be_elsewhere)
        if identity.user in self._gone:
            self._seen.add(identity.user)
        return self.rights(identity, session.client if last is ALL_RIGHTS else last.client)

    def renewed(self, session: Session, identity: Identity, now: float) -> None:
        """Gives a session the rights of a newer token, whose groups may be others, and ends what they do not allow."""
        self._broker.set_rights(session, self.rights(identity, session.client), now)

    # -- denials ----------------------------------------------------------------------------------------------------

    @property
    def counts(self) -> dict[Operation, int]:
        """Requests that were denied, by operation."""
        return {operation: self._denials.counts[operation] for operation in Operation}

    def denied_to(self, name: str) -> list[DeniedRequest]:
        """Returns what was denied to a client, or to a user, the newest first."""
        return list(reversed(self._requests.of(name[:NAME_CHARS_MAX])))

    def _denied(self, denial: Denial) -> None:
        one = DeniedRequest(
            round(time.time(), 3), denial.client[:NAME_CHARS_MAX], denial.user[:NAME_CHARS_MAX], denial.operation,
            denial.name[:NAME_CHARS_MAX], denial.text[:TEXT_CHARS_MAX],
        )  # fmt: skip
        for name in dict.fromkeys((one.client, one.user)):
            if name:
                self._requests.put(name, one)
        if denial.first:
            fields = {"client": denial.client, "user": denial.user, "operation": denial.operation, "name": denial.name}
            log.warning("denied to %s: %s", ascii(denial.client)[1:-1] or "a request", denial.text,
                        extra={"fields": fields})  # fmt: skip


def _names(settings: Settings) -> frozenset[str]:
    return frozenset((*settings.auth.users, *settings.auth.tokens))


def _wanted(settings: Settings) -> tuple[tuple[Permission, ...], Mapping[str, Sequence[str]], bool]:
    """Returns what the rights of clients depend on."""
    return settings.permissions, settings.auth.groups, users_are_elsewhere(settings)
