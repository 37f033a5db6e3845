"""Polls: consumers that read recorded topics by themselves. They attach, leave, and attach again."""

from __future__ import annotations

from math import inf

from headway.core.base import Reason, Refused
from headway.core.clients.sessions import Admission, Ending
from headway.core.clients.subscriptions.subscribing import Subscribing
from headway.core.consumer import (
    ConnectionlessOutlet,
    ConnectRequest,
    Poll,
    Session,
    SubscribeRequest,
    SubscriptionOptions,
)
from headway.core.message import Dialect
from headway.core.permission import ALL_RIGHTS, Operation, Rights
from headway.core.policy import HTTP_LISTENER
from headway.core.routing import Registry

POLLS_PROTOCOL = "http"


class Polls:
    """Attaches and detaches polls by name."""

    def __init__(self, registry: Registry, admission: Admission, subscribing: Subscribing, ending: Ending) -> None:
        self._registry = registry
        self._admission = admission
        self.leave = admission.leave
        self._subscribing = subscribing
        self._ending = ending

    def attach(self, name: str, filter: str, offset: int, policy: str | None, dialect: Dialect, now: float,
               username: str | None = None, patience_s: float | None = None, rights: Rights = ALL_RIGHTS) -> Poll:
        """Returns the poll of this name, which reads a recorded filter. A new poll begins at ``offset``. ``dialect`` is
        journaled with it, but no record is encoded for a poll. ``username`` is its owner. Raises :class:`Refused`."""
        rights.check(Operation.SUBSCRIBE, filter)
        session = self._registry.sessions.get(name)
        if session is not None and session.protocol != POLLS_PROTOCOL:
            text = f"{name!r} is the name of a client that speaks {session.protocol}"
            raise Refused(Reason.PRECONDITION_FAILED, text)
        if session is None or not session.connected:
            request = ConnectRequest(name, HTTP_LISTENER, clean_start=False, expiry_s=inf, username=username,
                                     protocol=POLLS_PROTOCOL, rights=rights)  # fmt: skip
            session = self._admission.connect(request, ConnectionlessOutlet(now), now)
        session.grant(rights)
        poll = next((one for one in session.subscriptions.values() if isinstance(one, Poll)), None)
        wanted = SubscribeRequest(filter, dialect, qos=1, send_retained="never", polling=True,
                                  options=SubscriptionOptions(policy=policy, patience_s=patience_s))  # fmt: skip
        if poll is not None and poll.request.key != wanted.key:
            self._ending.end(poll, Reason.SUBSCRIPTION_ENDED, now)
            poll = None
        if poll is None:
            poll = self._subscribing.poll(session, wanted, offset, now)
        elif poll.request.options != wanted.options:
            self._subscribing.change_terms(poll, wanted)
        session.lagging[poll] = None  # the governor always watches a poll, because no turn would add it again
        self._registry.watched.setdefault(poll)
        return poll

    def end(self, session: Session, now: float) -> None:
        self._admission.end(session, Reason.SUBSCRIPTION_ENDED, now)
