"""Rights: what one client may do. Each question is answered once, and the answer is remembered.

Rules:
- What is not granted is denied.
- The remembered answers have a limit, and are on the tab of the client. A reload makes new rights, without answers.
- A subscription needs one filter that covers all of it. Nothing is judged per message.
- Topics that begin with "$" are the broker's own: no permission makes them publishable, but those of queues and
  exchanges. Everybody may renew leases (``RENEW``).
"""

from __future__ import annotations

from typing import Final

from headway.core.base import Reason, Refused
from headway.core.log import RIGHTS, Tab
from headway.core.message import RENEW, matches
from headway.core.permission.denials import Denial, Denials
from headway.core.permission.grants import NOTHING, AllGrants, FilterSet, Grants
from headway.core.permission.identity import NOBODY, Identity
from headway.core.permission.rule import EXCHANGES, QUEUES, Operation

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
