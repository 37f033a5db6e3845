"""Publishing: checks and changes of records that are the same for all protocols with queues."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from headway.core.base import ConfigError, Reason, Refused, format_duration
from headway.core.consumer import Channel, Session, Subscription
from headway.core.log import Tab
from headway.core.message import JOB_PATIENCE, MERGE, RENEW, Run, parse_patience
from headway.core.routing import COPIES
from headway.server.connections import Steps
from headway.server.engine import Engine
from headway.server.protocols import QUEUES
from headway.wire.common import Remembered

# -- publishing --------------------------------------------------------------------------------------------------------


Key = TypeVar("Key")
Value = TypeVar("Value")
REMEMBERED_PROPERTIES = "remembered_properties"
NO_PATCHES = "not in a transaction, whose commit could not refuse a single patch"


def check_topic(topic: str, session: Session, engine: Engine) -> str:
    """Returns a topic that clients may publish to. One of them renews the client's leases. Raises :class:`Refused`."""
    if topic.startswith("$"):
        if topic != RENEW:
            raise Refused(Reason.NOT_AUTHORIZED, "topics that start with $ are the broker's own")
        session.renewed_s = engine.now()
    return topic


def check_patience(value: object, name: str = f"the header {JOB_PATIENCE}") -> None:
    """Raises :class:`Refused` if a message asks for patience in a way that cannot be understood."""
    try:
        if not isinstance(value, str):
            raise ConfigError(f"it is a text such as 20m, not of the type {type(value).__name__}")
        parse_patience(value)
    except ConfigError as error:
        raise Refused(Reason.PRECONDITION_FAILED, f"{name}: {error}") from None


def check_copies(headers: Mapping[str, object]) -> None:
    """Raises :class:`Refused` if a message of another protocol has more routing keys, as only those of AMQP 0-9-1 have.
    Its rights would have to be those for each of the keys, and it is routed again after a restart."""
    if isinstance(headers.get(COPIES), list | tuple):
        text = f"the property {COPIES} is a list, which only clients of AMQP 0-9-1 may send: it has more routing keys"
        raise Refused(Reason.PRECONDITION_FAILED, text)


def merges(engine: Engine, run: Run) -> bool:
    """Tells whether patches are merged where this run goes."""
    return engine.broker.registry.router.route_from(run.exchange, run.topic, run.headers).merges is not None


def take_merge_away(run: Run, *others: str) -> None:
    """Takes the header ``merge``, and others, away from a patch for a keyed topic, because its consumers get a merged
    record."""
    assert run.properties.native is not None
    native = QUEUES.without_headers(run.properties.native, {MERGE, *others})
    run.properties = msgspec.structs.replace(run.properties, native=native)
    run.headers = {name: value for name, value in (run.headers or {}).items() if name != MERGE} or None


def remember(tab: Tab, known: Remembered[Key, Value], key: Key, value: Value, size: int) -> None:
    """Remembers what was read of a message, of about so many bytes, if its client has memory for it."""
    with suppress(Refused):
        tab.check(size)
        before = known.bytes
        known.keep(key, value, size)
        tab.add(REMEMBERED_PROPERTIES, known.bytes - before)


def forget(tab: Tab, known: Remembered[Any, Any]) -> None:
    """Forgets all of that."""
    tab.add(REMEMBERED_PROPERTIES, -known.bytes)
    known.clear()


# -- settlement --------------------------------------------------------------------------------------------------------
#
# Settlement of deliveries, in steps: a client may settle a hundred thousand at once.


PORTION = 256
"""Deliveries that are settled in one step."""
DEAR_PORTION, DEAR_WORK = 32, 1024
"""Deliveries, and about the work, of a step after one that was more work than to settle them: they go back to their
queues, or become dead letters, which very many queues may get. The first step, of one delivery, shows what they cost.
"""
Settle = Callable[[Sequence[int]], None]


def settle(engine: Engine, ids: Sequence[int], do: Settle) -> int:
    """Settles deliveries and returns the work; dead letters among them count extra."""
    overdue = engine.broker.registry.overdue
    before = overdue.left
    if ids:
        do(ids)
    return max(1, len(ids)) + before - overdue.left


def settle_in_steps(engine: Engine, channel: Channel, ids: Sequence[int], do: Settle, *, sure: bool = True) -> Steps:
    """Settles deliveries, also if the client leaves. ``sure``: they were all there; those gone meanwhile are skipped.
    """
    at, portion = 0, 1
    while at < len(ids):
        some = ids[at : at + portion]
        at += portion
        work = settle(engine, [one for one in some if channel.holds(one)] if sure else some, do)
        portion = PORTION if work <= portion else max(1, min(DEAR_PORTION, DEAR_WORK * portion // work))
        yield work


# -- patience ----------------------------------------------------------------------------------------------------------
#
# Patience: what a consumer asks for, and whether it is granted, where no answer has room to say so.


log = logging.getLogger("headway")


def log_patience(subscription: Subscription) -> None:
    """Logs that a consumer may not hold its jobs for as long as it asked for."""
    asked_s = subscription.request.options.patience_s
    if asked_s and asked_s != subscription.patience_s:
        log.warning(
            "%s on %s: asked for patience of %s and was granted %s, by policy %r", subscription.session.client,
            subscription.filter, format_duration(asked_s), format_duration(subscription.patience_s),
            subscription.case.policy.name,
        )  # fmt: skip
