"""Queues by name, for clients whose protocols do not declare: a queue is made when it is first named.

Rules:
- A queue that is there is taken as it is, whoever declared it and on whatever terms. One that is not is made durable.
- Permissions are those of AMQP's commands: to make a queue needs ``declare``, to consume ``subscribe``, to send
  ``publish``. A denial raises :class:`Refused`.
- A temporary queue is exclusive, named by the broker, and ends with its client's connection. Whoever knows its name may
  send to it, for only its owner told it.
- A subscription to topics that has acknowledgements, or that outlives its connection, is a queue that is bound to them.
  Queues with the same topics read the same lane, so a hundred of them take no more memory than one.
- The queue of a virtual topic is bound to it when somebody consumes from it.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from headway.core.base import Reason, Refused
from headway.core.clients import (
    Queues,
    check_binding,
    check_known,
    check_known_exchange,
    check_queue,
    is_own,
    published_to,
    queue_object,
)
from headway.core.consumer import QueueTerms, Session, SubscribeRequest, SubscriptionOptions
from headway.core.message import TOPICS, Run, routing_key_of, topic_of
from headway.core.permission import ALL_RIGHTS, Operation
from headway.core.queue import Queue, queue_of
from headway.core.routing import Binding, Destination
from headway.core.selector import TYPED, BadSelector, compile_selector
from headway.server.connections import SUBSCRIBE_WORK, TurnBudget
from headway.server.engine import Engine
from headway.server.protocols import QUEUES

# -- destinations ------------------------------------------------------------------------------------------------------
#
# Destinations as clients of message brokers name them: with dots between words, ActiveMQ's and RabbitMQ's wildcards.
#
# A topic's dots are the slashes of the broker's topics. ``*`` stands for one word, ``>`` or ``#`` at the end for the
# rest. Commas separate the parts of a composite name. Names of queues are plain; they have no wildcards.
#
# Virtual topics are as ActiveMQ has them by default: the queue ``Consumer.NAME.VirtualTopic.X`` gets what is sent to
# the topic ``VirtualTopic.X``, from the time on when somebody first consumes from it. So each NAME has all messages,
# and its consumers share them. X may have wildcards: such a queue gets what is sent to all these topics.


REST = (">", "#")
_WILD = "*>#+"
_VIRTUAL = re.compile(r"Consumer\.[^.*>#]+\.(VirtualTopic\..+)", re.DOTALL)


def filter_of(name: str) -> str:
    """Returns the filter of a topic's name. Raises :class:`Refused`."""
    words = _words(name)
    return "/".join("+" if word == "*" else "#" if word in REST else topic_of(word) for word in words)


def binding_key_of(name: str) -> str:
    """Returns the key that binds a queue to the topics of this name. Raises :class:`Refused`."""
    return ".".join("#" if word in REST else word for word in _words(name))


def topic_named(name: str) -> str:
    """Returns the topic that records are published to. Raises :class:`Refused`."""
    if any(char in name for char in "#+") or any(word in ("*", ">") for word in name.split(".")):
        raise Refused(Reason.PROTOCOL_ERROR, f"topic {name[:100]!r}: wildcards are for subscribers")
    return topic_of(name)


def name_of_topic(topic: str) -> str:
    """Returns a topic's name, with dots."""
    return routing_key_of(topic)


def parts_of(name: str) -> list[str]:
    """Returns the names in a composite one."""
    return [part for part in (part.strip() for part in name.split(",")) if part]


def virtual_topic_of(queue: str) -> str | None:
    """Returns the name of the topic whose messages a queue of this name gets; None: of none."""
    found = _VIRTUAL.fullmatch(queue)
    return None if found is None else found[1]


def _words(name: str) -> list[str]:
    words = name.split(".")
    for number, word in enumerate(words, 1):
        if word in REST and number < len(words):
            raise Refused(Reason.PROTOCOL_ERROR, f"topic {name[:100]!r}: {word!r} stands at the end of the name")
        if len(word) > 1 and any(char in word for char in _WILD):
            text = f"topic {name[:100]!r}: a wildcard is a whole word between dots, as in flights.*.late"
            raise Refused(Reason.PROTOCOL_ERROR, text)
    return words


# -- queue arguments ---------------------------------------------------------------------------------------------------
#
# Arguments of queues, exchanges and bindings, as clients give them: in AMQP's tables, or as headers.
#
# Names are RabbitMQ's. Unknown arguments are ignored, as RabbitMQ does. Known arguments with values that make no sense
# are refused, so that nobody relies on a limit that is not in force.


Table = Mapping[str, object]
T = TypeVar("T")

PRIORITY_MAX = 255
MATCHES = {"all", "any", "all-with-x", "any-with-x"}
"""Values of ``x-match`` in the binding of a headers exchange."""
_OVERFLOW = {"drop-head", "reject-publish", "reject-publish-dlx"}
_QUEUE_TYPES = {"classic", "quorum"}


def read_terms(arguments: Table, *, durable: bool, exclusive: bool, auto_delete: bool) -> QueueTerms:
    """Reads the terms of a queue. Raises :class:`Refused`."""
    _one_of(arguments, "x-queue-type", _QUEUE_TYPES)
    overflow = _one_of(arguments, "x-overflow", _OVERFLOW) or "drop-head"
    exchange = _read(arguments, "x-dead-letter-exchange", _text)
    key = _read(arguments, "x-dead-letter-routing-key", _text)
    if key is not None and exchange is None:
        raise _bad("x-dead-letter-routing-key", "there is no x-dead-letter-exchange")
    ttl_ms = _read(arguments, "x-message-ttl", _count)
    idle_ms = _read(arguments, "x-expires", _count)
    if idle_ms == 0:
        raise _bad("x-expires", "a queue that is to end at once")
    priorities = _read(arguments, "x-max-priority", _count) or 0
    if priorities > PRIORITY_MAX:
        raise _bad("x-max-priority", f"at most {PRIORITY_MAX}, not {priorities}")
    return QueueTerms(
        durable=durable,
        exclusive=exclusive,
        auto_delete=auto_delete,
        ttl_s=None if ttl_ms is None else ttl_ms / 1000,
        idle_s=None if idle_ms is None else idle_ms / 1000,
        records_max=_read(arguments, "x-max-length", _count),
        bytes_max=_read(arguments, "x-max-length-bytes", _count),
        refuses=overflow != "drop-head",
        dead_letter_exchange=exchange,
        dead_letter_key=key,
        dead_letter_refused=overflow == "reject-publish-dlx",
        priorities=priorities,
        single_active=_read(arguments, "x-single-active-consumer", _flag) or False,
        returns_max=_read(arguments, "x-delivery-limit", _limit),
    )


def read_alternate(arguments: Table) -> str | None:
    """Reads the name of an exchange's alternate exchange. Raises :class:`Refused`."""
    return _read(arguments, "alternate-exchange", _text)


def _read(arguments: Table, name: str, read: Callable[[str, object], T]) -> T | None:
    return read(name, arguments[name]) if name in arguments else None


def _count(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _bad(name, f"a number from 0 on, not {value!r}")
    return value


def _limit(name: str, value: object) -> int | None:
    """Reads a limit; -1 means that there is none."""
    return None if value == -1 else _count(name, value)


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise _bad(name, f"a text, not {value!r}")
    return value


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise _bad(name, f"true or false, not {value!r}")
    return value


def _one_of(arguments: Table, name: str, known: set[str]) -> str | None:
    value = _read(arguments, name, _text)
    if value is not None and value not in known:
        raise _bad(name, f"{' or '.join(sorted(known))}, not {value!r}")
    return value


def _bad(name: str, text: str) -> Refused:
    return Refused(Reason.PRECONDITION_FAILED, f"invalid arg '{name}': {text}")


# -- named queues ------------------------------------------------------------------------------------------------------


log = logging.getLogger("headway")

DURABLE = QueueTerms(durable=True)
TEMPORARY = QueueTerms(exclusive=True)
SUBSCRIBED = QueueTerms(exclusive=True, auto_delete=True)
"""The terms of a subscription's queue that ends with it."""
TEMPORARY_NAMES = "amq.temp-"
"""The prefix of the names of temporary queues. No client can declare such a name."""
DURABLE_QUEUES = "durable."


def with_selector(terms: QueueTerms, selector: str | None) -> QueueTerms:
    """Returns the terms of a subscription to topics with this selector. Raises :class:`Refused`."""
    if selector is None:
        return terms
    try:
        return msgspec.structs.replace(terms, selector=compile_selector(selector).text)
    except BadSelector as error:
        raise Refused(Reason.PROTOCOL_ERROR, str(error)) from None


def _is_another(there: QueueTerms, wanted: QueueTerms) -> bool:
    """Tells whether a named subscription is another one than that which is there. Whose records are left out does not
    count: that is the name that its client had when it was made (login_side.py)."""
    if _former(there.selector) != _former(wanted.selector):
        return True
    return (there.leaves_out is None) != (wanted.leaves_out is None)


def _former(selector: str | None) -> str | None:
    """Returns a selector as it was kept before 28 November 2026: untyped, and with another name for the priority. So
    no subscription of that time ends, with what waits for it, when its client comes back."""
    if selector is None:
        return None
    return compile_selector(selector.removeprefix(TYPED)).text.replace("JMSPriority", "priority")


def check_alone(*, no_local: bool, shared: bool) -> None:
    """Raises :class:`Refused` if a durable subscription of many clients is to leave out the records of one."""
    if no_local and shared:
        text = "a shared subscription gets the messages of all its clients: noLocal is for subscriptions of one"
        raise Refused(Reason.PRECONDITION_FAILED, text)


def durable_queue(client: str, name: str) -> str:
    """Returns the name of the queue of a client's durable subscription. Both names may have dots, so two clients'
    subscriptions may have one name (``NamedQueues.of_subscriber``)."""
    return f"{DURABLE_QUEUES}{client}.{name}"


def is_temporary(name: str) -> bool:
    return name.startswith(TEMPORARY_NAMES)


class NamedQueues:
    """The queues of the broker, as one client may use them."""

    __slots__ = ("_budget", "_engine", "_session", "queues")

    def __init__(self, engine: Engine, session: Session, budget: TurnBudget) -> None:
        """``budget``: that of the client's connection, from which queues that are made and bound are paid."""
        self._engine = engine
        self._session = session
        self._budget = budget
        self.queues: Queues = engine.broker.queues

    def knows(self, name: str) -> bool:
        return name in self._engine.broker.registry.router.queues

    def found(self, name: str) -> Queue | None:
        """Returns the queue of this name; None: there is none."""
        queue = self._engine.broker.registry.router.queues.get(name)
        return None if queue is None else queue_of(queue)

    def named(self, name: str, terms: QueueTerms = DURABLE) -> Queue:
        """Returns the queue of this name, and makes it if there is none. Raises :class:`Refused`."""
        if not is_temporary(name):
            check_known(self._session.rights, name)
        if self.knows(name) or is_temporary(name):
            return self.queues.queue(self._session, name)
        check_queue(self._session.rights, name, terms, own=False)
        self._budget.left -= SUBSCRIBE_WORK
        return self.queues.declare(self._session, name, terms, QUEUES.dialect, self._engine.now())

    def consumed(self, name: str, terms: QueueTerms = DURABLE) -> Queue:
        """Returns the queue that a client consumes from, as ``named``. That of a virtual topic is bound to its topic
        from then on. Raises :class:`Refused`."""
        topic, known = virtual_topic_of(name), self.knows(name)
        queue = self.named(name, terms)
        if topic is not None and filter_of(topic) not in queue.filters:
            try:
                self.bind(queue, binding_key_of(topic))
            except Exception:
                if not known:
                    self.queues.delete(queue, self._engine.now())
                raise
        return queue

    def of_subscriber(self, name: str, subscriber: str) -> Queue | None:
        """Returns the queue of a durable subscription of this client's; None: there is none. Raises :class:`Refused`
        if it is another client's."""
        queue = self.found(name)
        if queue is not None and queue.terms.subscriber not in (None, subscriber):
            text = f"the queue {name[:200]!r} is the durable subscription of another client: another name is needed"
            raise Refused(Reason.PRECONDITION_FAILED, text)
        return queue

    def subscription(
        self, name: str, subscriber: str | None, options: SubscriptionOptions, terms: QueueTerms = DURABLE, *,
        no_local: bool = False, filter: str | None = None,
    ) -> Queue:  # fmt: skip
        """Returns the queue of a named subscription to topics, and makes it if there is none. ``subscriber``: the
        client whose it is (``QueueTerms``). If ``no_local``, the client's own records do not enter it. Another
        selector, ``no_local`` where it was not said before, or another ``filter`` (None: any) makes it another
        subscription: the one before ends, with what waits for it (JMS 2.0, ``createDurableConsumer``), unless its next
        consumer would be refused. Raises :class:`Refused`."""
        wanted = self._with_no_local(with_selector(terms, options.selector), no_local)
        wanted = msgspec.structs.replace(wanted, subscriber=subscriber)
        known = self.found(name) if subscriber is None else self.of_subscriber(name, subscriber)
        if known is not None and (_is_another(known.terms, wanted) or filter not in (None, *known.filters)):
            self._session.rights.check(Operation.DECLARE, queue_object(name))
            request = SubscribeRequest(f"$queue/{name}", QUEUES.dialect, options=options)
            self.queues.check_consumer(self._session, request)
            queue, now = self.queues.queue(self._session, name), self._engine.now()
            waited = self.queues.delete(queue, now, if_unused=True, by=self._session)
            if waited:
                text = "%s: the durable subscription %r has other terms now: %d records that waited for it are gone"
                log.info(text, self._session.client, name, waited)
        return self.named(name, wanted)

    def temporary(self, selector: str | None = None, *, no_local: bool = False) -> Queue:
        """Makes a temporary queue, which the client's own records do not enter if ``no_local``. Raises
        :class:`Refused`."""
        return self._fresh(self._with_no_local(with_selector(TEMPORARY, selector), no_local))

    def subscribed(
        self, key: str, exchange: str = TOPICS, selector: str | None = None, *, no_local: bool = False
    ) -> Queue:
        """Makes a queue of the client's own, which ends with its consumer, and binds it by this key. Raises
        :class:`Refused`."""
        queue = self._fresh(self._with_no_local(with_selector(SUBSCRIBED, selector), no_local))
        try:
            self.bind(queue, key, exchange)
        except Exception:
            self.queues.delete(queue, self._engine.now())
            raise
        return queue

    def _with_no_local(self, terms: QueueTerms, no_local: bool) -> QueueTerms:
        return msgspec.structs.replace(terms, leaves_out=self._session.client) if no_local else terms

    def _fresh(self, terms: QueueTerms) -> Queue:
        name = f"{TEMPORARY_NAMES}{secrets.token_urlsafe(16)}"
        self._budget.left -= SUBSCRIBE_WORK
        return self.queues.declare(self._session, name, terms, QUEUES.dialect, self._engine.now())

    def bind(self, queue: Queue, key: str, exchange: str = TOPICS) -> bool:
        """Binds a queue. Returns whether the journal keeps that. Raises :class:`Refused`."""
        binding = Binding(exchange, Destination("queue", queue.name), key)
        check_known_exchange(self._session.rights, exchange)
        check_binding(self._session.rights, binding, self.queues.exchange(exchange), own=self._owns(queue))
        work = self.queues.bind(self._session, binding, self._engine.now())
        self._budget.left -= SUBSCRIBE_WORK + work + self.queues.take_looked()
        return self.queues.outlives(binding)

    def delete(self, name: str) -> None:
        """Deletes a queue, if there is one. Raises :class:`Refused`."""
        self._session.rights.check(Operation.DECLARE, queue_object(name))
        if self.knows(name):
            self.queues.delete(self.queues.queue(self._session, name), self._engine.now(), by=self._session)

    def check_subscription(self, name: str | None, key: str, exchange: str = TOPICS) -> None:
        """Raises :class:`Refused` unless the client may consume from a queue that is bound so, whatever it asks for
        beside that. ``name``: that of the queue; None: one of the client's own is made."""
        rights = self._session.rights
        if rights is ALL_RIGHTS:
            return
        if name is not None:
            self.check_consume(name)
        check_known_exchange(rights, exchange)
        binding = Binding(exchange, Destination("queue", name or ""), key)
        check_binding(rights, binding, self.queues.exchange(exchange), own=name is None)

    def check_consume(self, name: str) -> None:
        """Raises :class:`Refused` unless the client may consume from the queue of this name, which is made if there is
        none, whatever it asks for beside that."""
        rights, known = self._session.rights, self.found(name)
        if rights is ALL_RIGHTS or is_temporary(name) or (known is not None and self._owns(known)):
            return
        check_known(rights, name)
        if known is None:
            rights.check(Operation.DECLARE, queue_object(name))
        rights.check(Operation.SUBSCRIBE, queue_object(name))
        topic = virtual_topic_of(name)
        if topic is not None and (known is None or filter_of(topic) not in known.filters):
            binding = Binding(TOPICS, Destination("queue", name), binding_key_of(topic))
            check_binding(rights, binding, self.queues.exchange(TOPICS), own=False)

    def check_read(self, queue: Queue) -> None:
        """Raises :class:`Refused` unless the client may consume from the queue."""
        if not self._owns(queue):
            self._session.rights.check(Operation.SUBSCRIBE, queue_object(queue.name))

    def _owns(self, queue: Queue) -> bool:
        return is_own(queue.name, queue.terms) and queue.owner is self._session

    def check_send(self, name: str) -> None:
        """Raises :class:`Refused` unless the client may send to the queue of this name, whether there is one or not."""
        self.check_publish(Run(topic_of(name), b"", [0], [0], exchange=""))

    def check_publish(self, run: Run) -> None:
        """Raises :class:`Refused` unless the client may publish the run."""
        name = published_to(run.exchange, run.topic)
        if self._session.rights is not ALL_RIGHTS and not name.startswith(queue_object(TEMPORARY_NAMES)):
            self._session.rights.check_publish(name, len(run.ends))
