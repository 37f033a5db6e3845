"""Permissions: who may do what, decided by filters. It knows no protocol and does no I/O."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from headway.core.base import Reason, Refused
from headway.core.log import RIGHTS, Tab
from headway.core.message import RENEW, FilterTrie, covers, matches, overlaps, spellings

# -- identity ----------------------------------------------------------------------------------------------------------
#
# An identity: who a client is, as was checked.


class Identity(msgspec.Struct, frozen=True):
    """A user, as permissions and limits know it."""

    user: str = ""
    """Empty: the client gave no name that was checked."""
    groups: tuple[str, ...] = ()
    """Groups besides those of the config."""
    elsewhere: bool = False
    """Whether something else than the config vouches for the name, such as a certificate: its user need not be one of
    the config's."""
    until_s: float | None = None
    """The time when it ends (epoch seconds); None: never."""


NOBODY = Identity()


# -- rule --------------------------------------------------------------------------------------------------------------
#
# A permission: what a user, a group, or everybody may do, as it stands in the configuration.
#
# All names that a permission speaks of have the form of topics:
#
# - MQTT's topics, which are the routing keys of AMQP's exchange ``amq.topic``, stand for themselves;
# - ``$queue/NAME`` is a queue. The words of its name are levels, too: ``$queue/jobs/#`` covers ``jobs.eu``;
# - ``$exchange/NAME`` is an exchange, and ``$exchange/NAME/KEY`` what is published to it under a routing key;
# - ``$cursor/NAME`` and ``$writer/NAME`` are those of the HTTP API.


QUEUES = "$queue/"
EXCHANGES = "$exchange/"


class Operation(StrEnum):
    CONNECT = "connect"
    """To connect; its filters are for client ids."""
    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    """To read in any way: subscriptions, consumers, bindings, records over HTTP."""
    DECLARE = "declare"
    """To make, change and delete what has a name."""
    ADMIN = "admin"
    """To ask and change the broker: ``read`` and ``change``."""


class Permission(msgspec.Struct, frozen=True):
    """One ``[[permission]]``. In its filters ``%u`` stands for the user's name, and ``%c`` for the client id."""

    user: str | None = None
    group: str | None = None
    """Neither: everybody, clients without a user name included."""
    connect: tuple[str, ...] = ()
    publish: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()
    declare: tuple[str, ...] = ()
    admin: tuple[str, ...] = ()

    def filters(self, operation: Operation) -> tuple[str, ...]:
        filters: tuple[str, ...] = getattr(self, operation)
        return filters


# -- denials -----------------------------------------------------------------------------------------------------------
#
# Denials: how often each operation was denied, and the words of each that was denied for the first time.


class Denial(msgspec.Struct, frozen=True):
    """A client was denied something that it had not asked for before."""

    client: str
    user: str
    operation: Operation
    name: str
    text: str
    first: bool
    """Whether it is the client's first denial of this operation since it connected, or since the last reload."""


class Denials:
    def __init__(self, tell: Callable[[Denial], None] = lambda denial: None) -> None:
        self.counts: Counter[Operation] = Counter()
        """Requests that were denied; of publishes, the records."""
        self.tell = tell
        """Called with each denial; not again while the client's answers are remembered."""

    def add(self, operation: Operation, count: int = 1) -> None:
        self.counts[operation] += count


# -- grants ------------------------------------------------------------------------------------------------------------
#
# Grants: the filters of all permissions that apply to one user, for each operation.
#
# ``%u`` is filled in once per user, ``%c`` once per client. A name that could be more than a part of one level widens
# no filter: where it is empty, begins with "$", has a "/", "+", "#" or NUL in it, or brings a ``%c``, the filter is
# left out. In filters of queues, where dots part words, a name with a dot is not filled in, either.


USER, CLIENT = "%u", "%c"
_UNSAFE = re.compile(r"^\$|[/+#\0]")


def fill(filter: str, placeholder: str, name: str) -> str | None:
    """Returns the filter with a name in the place of ``%u`` or ``%c``; None: this name may not stand there."""
    if placeholder not in filter:
        return filter
    if not name or _UNSAFE.search(name) or (filter.startswith(QUEUES) and "." in name):
        return None
    filled = filter.replace(placeholder, name)
    if placeholder == USER and filled.count(CLIENT) > filter.count(CLIENT):
        return None  # the client id would stand in the place of the user's name
    return filled


def fill_all(filters: Iterable[str], placeholder: str, name: str) -> Iterator[str]:
    """Yields those of the filters in which this name may stand, with it in the place of ``%u`` or ``%c``."""
    for filter in filters:
        filled = fill(filter, placeholder, name)
        if filled is not None:
            yield filled


class FilterSet:
    """Filters of which one has to cover what is asked for."""

    __slots__ = ("_trie", "filters")

    def __init__(self, filters: Iterable[str]) -> None:
        self.filters = tuple(dict.fromkeys(filters))
        self._trie: FilterTrie[None] = FilterTrie()
        for filter in self.filters:
            self._trie.add(filter, None)

    def allows(self, name: str) -> bool:
        """Tells whether some filter matches a name."""
        return bool(self.filters) and any(self._trie.match(one) for one in _spellings(name))

    def covers(self, filter: str) -> bool:
        """Tells whether one of the filters matches everything that ``filter`` matches."""
        return any(covers(wide, one) for one in _spellings(filter) for wide in self.filters)

    def touches(self, filter: str) -> bool:
        """Tells whether one of the filters matches something of ``filter``."""
        return any(self.parts_of(one) for one in _spellings(filter))

    def parts_of(self, filter: str) -> list[str]:
        """Returns the filters that match something of ``filter``."""
        return [one for one in self.filters if filter and overlaps(one, filter)]


def _spellings(name: str) -> tuple[str, ...]:
    """Returns the names that stand for this one. The empty topic, which AMQP has, is one level."""
    return spellings(name) if name else ("\0",)


NOTHING = FilterSet(())
ANYTHING = "\0"
"""Stands for all names, also those that begin with "$". No permission can have it."""


class Grants:
    """The filters that one user has. Those with ``%c`` in them wait for the client id."""

    __slots__ = ("_filters", "applies", "sets", "templates")

    def __init__(self, user: str, rules: Iterable[Permission]) -> None:
        found: dict[Operation, list[str]] = {operation: [] for operation in Operation}
        self.templates: dict[Operation, tuple[str, ...]] = {}
        self.applies = False
        """Whether there is a permission for this user at all."""
        for rule in rules:
            for operation in Operation:
                found[operation] += fill_all(rule.filters(operation), USER, user)
        self._filters = {operation: frozenset(filters) for operation, filters in found.items()}
        for operation, filters in found.items():
            self.applies = self.applies or bool(filters)
            if waiting := tuple(filter for filter in filters if CLIENT in filter):
                self.templates[operation] = waiting
        self.sets: Mapping[Operation, FilterSet] = {
            operation: FilterSet(filter for filter in filters if CLIENT not in filter)
            for operation, filters in found.items() if filters
        }  # fmt: skip

    def same_as(self, other: Grants) -> bool:
        return self is other or self._filters == other._filters

    def less_than(self, before: Grants) -> frozenset[Operation]:
        """Returns the operations for which something that ``before`` allowed may be denied now. Connecting is among
        them wherever it is another matter than before: there a filter more allows less."""
        less = {operation for operation in Operation if not before._filters[operation] <= self._filters[operation]}
        connect = Operation.CONNECT
        if before.applies != self.applies or before._filters[connect] != self._filters[connect]:
            less.add(connect)
        return frozenset(less)

    def of_client(self, client: str) -> dict[Operation, FilterSet]:
        """Returns the filters that only this client id brings."""
        return {operation: FilterSet(fill_all(templates, CLIENT, client))
                for operation, templates in self.templates.items()}  # fmt: skip


class AllGrants(Grants):
    """Those of everybody while there are no permissions: they allow everything."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("", ())
        self._filters = dict.fromkeys(Operation, frozenset({ANYTHING}))

    def less_than(self, before: Grants) -> frozenset[Operation]:
        return frozenset()


# -- rights ------------------------------------------------------------------------------------------------------------
#
# Rights: what one client may do. Each question is answered once, and the answer is remembered.
#
# Rules:
# - What is not granted is denied.
# - The remembered answers have a limit, and are on the tab of the client. A reload makes new rights, without answers.
# - A subscription needs one filter that covers all of it. Nothing is judged per message.
# - Topics that begin with "$" are the broker's own: no permission makes them publishable, but those of queues and
#   exchanges. Everybody may renew leases (``RENEW``).


ANSWERS_MAX = 1_000
ANSWERS_BYTES_MAX = 128 * 1024
ANSWER_BYTES = 250
SHOWN_MAX = 3
NAME_CHARS_MAX = 200
_ID = "id/"
_VERBS = {
    Operation.CONNECT: "connect as", Operation.PUBLISH: "publish to", Operation.SUBSCRIBE: "subscribe to",
    Operation.DECLARE: "declare", Operation.ADMIN: "ask the admin API to",
}  # fmt: skip
_OPERATES = frozenset(("read", "change"))


class Rights:
    """The rights of one client."""

    __slots__ = ("_answers", "_denials", "_own", "_publish", "_tab", "_told", "client", "grants", "identity", "size")

    def __init__(self, identity: Identity, client: str, grants: Grants, denials: Denials) -> None:
        """``client`` is empty where the client has no client id of its own, as over HTTP."""
        self.identity = identity
        self.client = client
        self._tab: Tab | None = None
        """Where the answers are counted, if the client has a session."""
        self.size = 0
        """Bytes of the remembered answers."""
        self.grants = grants
        self._own = grants.of_client(client) if grants.templates else {}
        self._denials = denials
        self._publish: dict[str, bool] = {}
        """Answers by topic."""
        self._answers: dict[tuple[Operation, str], bool] = {}
        self._told: set[Operation] = set()

    def count_on(self, tab: Tab) -> None:
        """Counts the remembered answers on a tab."""
        self._tab = tab

    def same_as(self, other: Rights) -> bool:
        """Tells whether the other rights allow the same, to the same client."""
        return self.client == other.client and self.grants.same_as(other.grants)

    @property
    def user(self) -> str:
        """The client's user; empty: it gave no name that was checked."""
        return self.identity.user

    @property
    def applies(self) -> bool:
        """Whether there is a permission for this user at all."""
        return self.grants.applies

    # -- questions --------------------------------------------------------------------------------------------------

    def may_publish(self, topic: str, records: int = 1) -> bool:
        """Tells whether records may be published to this topic, and counts them if not."""
        answer = self._publish.get(topic)
        if answer is None:
            allows = topic == RENEW or (not _is_own(topic) and self._allows(Operation.PUBLISH, topic))
            answer = self._publish[topic] = self._new_answer(Operation.PUBLISH, topic, allows)
        if not answer:
            self._denials.add(Operation.PUBLISH, records)
        return answer

    def may(self, operation: Operation, filter: str) -> bool:
        """Tells whether everything that ``filter`` matches is allowed, and counts a denial."""
        key = operation, filter
        answer = self._answers.get(key)
        if answer is None:
            answer = self._answers[key] = self._new_answer(operation, filter, self.covers(operation, filter))
        if not answer:
            self._denials.add(operation)
        return answer

    def check(self, operation: Operation, filter: str) -> None:
        """Raises :class:`Refused` unless everything that ``filter`` matches is allowed."""
        if not self.may(operation, filter):
            raise self.refusal(operation, filter)

    def check_publish(self, topic: str, records: int = 1) -> None:
        """Raises :class:`Refused` unless records may be published to this topic."""
        if not self.may_publish(topic, records):
            raise self.refusal(Operation.PUBLISH, topic)

    def check_connect(self) -> None:
        """Raises :class:`Refused` unless the client may connect: some permission is for it, and where permissions name
        client ids, one of them is its own, if it has one."""
        if not self._may_connect():
            self._denials.add(Operation.CONNECT)
            self._tell(Operation.CONNECT, self.client)
            raise self.refusal(Operation.CONNECT, self.client)

    def breadth(self, operation: Operation) -> int:
        """Returns how many filters are looked at to answer a question that was not asked before."""
        return sum(len(some.filters) for some in self._sets(operation))

    # -- answers ----------------------------------------------------------------------------------------------------

    def refusal(self, operation: Operation, name: str) -> Refused:
        return Refused(Reason.NOT_AUTHORIZED, self.text(operation, name))

    def text(self, operation: Operation, name: str) -> str:
        """Returns the words of a denial. Where a part of it would be allowed, they say which."""
        who = self.user or "a client without a user name"
        shown = name if len(name) <= NAME_CHARS_MAX else name[: NAME_CHARS_MAX - 1] + "…"
        said = f"{who} may not {_VERBS[operation]} {shown!r}"
        if operation is Operation.CONNECT and not self.grants.applies:
            return f"{who} may not connect: no [[permission]] is for this user"
        parts = []
        if operation is not Operation.CONNECT and operation is not Operation.ADMIN:
            parts = [part for some in self._sets(operation) for part in some.parts_of(name)]
        if parts:
            more = f" and {len(parts) - SHOWN_MAX} more" if len(parts) > SHOWN_MAX else ""
            return f"{said}, only to a part of it: {', '.join(parts[:SHOWN_MAX])}{more}"
        return f"{said}: no [[permission]] allows it"

    def forget(self) -> None:
        """Forgets all answers."""
        self._publish.clear()
        self._answers.clear()
        self._count(-self.size)

    def _sets(self, operation: Operation) -> tuple[FilterSet, FilterSet]:
        return self.grants.sets.get(operation, NOTHING), self._own.get(operation, NOTHING)

    def _allows(self, operation: Operation, name: str) -> bool:
        return any(some.allows(name) for some in self._sets(operation))

    def covers(self, operation: Operation, filter: str) -> bool:
        """Tells whether everything that ``filter`` matches is allowed, for a list of what is; nothing is counted."""
        if operation is Operation.PUBLISH and _is_own(filter):
            return False
        return any(some.covers(filter) for some in self._sets(operation))

    def sees(self, filter: str) -> bool:
        """Tells whether figures about everything that ``filter`` matches may be told: to clients that may read all of
        it, and to operators. The number of a state's keys says how much goes on in topics that others may not read.
        Nothing is counted, for the client has not asked for it."""
        operates = self.grants.sets.get(Operation.ADMIN, NOTHING)
        return self.covers(Operation.SUBSCRIBE, filter) or not _OPERATES.isdisjoint(operates.filters)

    def touches(self, filter: str) -> bool:
        """Tells whether something that ``filter`` matches is allowed to be read, written or declared. Whoever may do
        nothing with an object is not told whether it is there. Nothing is counted."""
        ways = Operation.SUBSCRIBE, Operation.PUBLISH, Operation.DECLARE
        return any(some.touches(filter) for way in ways for some in self._sets(way))

    def _may_connect(self) -> bool:
        filters = [filter for some in self._sets(Operation.CONNECT) for filter in some.filters]
        if not self.client or (not filters and Operation.CONNECT not in self.grants.templates):
            return self.grants.applies
        return any(matches(_ID + filter, _ID + self.client) for filter in filters)

    def _new_answer(self, operation: Operation, name: str, answer: bool) -> bool:
        """Counts an answer that is to be remembered. Where there are too many, all others are forgotten."""
        size = ANSWER_BYTES + 2 * len(name)
        full = len(self._publish) + len(self._answers) >= ANSWERS_MAX or self.size + size > ANSWERS_BYTES_MAX
        if full:
            self.forget()
        self._count(size)
        if not answer:
            self._tell(operation, name)
        return answer

    def _count(self, change: int) -> None:
        self.size += change
        if self._tab is not None:
            self._tab.put(RIGHTS, self.size)

    def _tell(self, operation: Operation, name: str) -> None:
        first = operation not in self._told
        self._told.add(operation)
        shown = name[:NAME_CHARS_MAX]
        self._denials.tell(Denial(self.client, self.user, operation, shown, self.text(operation, name), first))


class AllRights(Rights):
    """Those of all clients while there are no permissions. They allow everything, and remember nothing."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(NOBODY, "", AllGrants(), Denials())

    def count_on(self, tab: Tab) -> None:
        pass

    def may_publish(self, topic: str, records: int = 1) -> bool:
        return True

    def may(self, operation: Operation, filter: str) -> bool:
        return True

    def covers(self, operation: Operation, filter: str) -> bool:
        return True

    def touches(self, filter: str) -> bool:
        return True

    def check_connect(self) -> None:
        pass


ALL_RIGHTS: Final[Rights] = AllRights()


def _is_own(name: str) -> bool:
    """Tells whether a topic is one that only the broker publishes to."""
    return name.startswith("$") and not name.startswith((QUEUES, EXCHANGES))


# -- permissions -------------------------------------------------------------------------------------------------------
#
# Permissions: all rules of a configuration. They say what rights a user's client has.


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
