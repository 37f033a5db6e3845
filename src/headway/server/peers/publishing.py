"""Publishing: checks and changes of records that are the same for all protocols with queues."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from headway.core.base import ConfigError, Reason, Refused
from headway.core.consumer import Session
from headway.core.log import Tab
from headway.core.message import JOB_PATIENCE, MERGE, RENEW, Run, parse_patience
from headway.core.routing import COPIES
from headway.server.engine import Engine
from headway.server.protocols import QUEUES
from headway.wire.remembered import Remembered

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
