"""Apache Qpid's broker in Java, configured in XML: ``config.xml``, ``virtualhosts.xml``, the proposed ``<consumer>``.

Rules:
- A consumer's limits stand in a ``topic`` (with ``key``, or a ``name`` in it), in a ``queue``, in ``topics`` or
  ``queues`` for all of these, or alone. A topic there is a queue bound to ``amq.topic``; here that is a topic filter.
- A durable subscription there is a queue called ``CLIENT:NAME``. Here it has that name if a client of AMQP 0-9-1
  declares it so, and is ``durable.CLIENT.NAME`` if one of JMS, STOMP or AMQP 1.0 subscribes. A policy is for both.
- Of several limits each one fires, and one that cannot be read leaves the others. Durable subscriptions are spared
  unless ``delete-persistent`` says otherwise.
- Limits of a queue that only raise an alert there are rules that only notify.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headway.migration.draft import Draft, PolicyDraft, Unreadable, from_words, queue_filter, rule, said, units
from headway.migration.formats import Node, read_xml
from headway.migration.origins.origin import Origin

QUEUES = "$queue/+"
NAME_BYTES_MAX = 255
"""The longest name that a queue of AMQP has."""
_MISPRINT = "maessageAge"
"""So Qpid's document about slow consumers prints ``messageAge``."""
CONSUMERS = ("consumer", "slow-consumer", "slow-consumer-detection")
_LIMITS: Mapping[str, tuple[str, Callable[[Node], Any]]] = {
    "depth": ("lag_bytes", units.limit), "messageCount": ("lag_records", units.limit),
    "messageAge": ("lag_age", units.time_limit), _MISPRINT: ("lag_age", units.time_limit),
}  # fmt: skip
"""The meter of each limit of a consumer, and what reads the limit."""
_TIMES_MS = {
    "NANOSECONDS": 1e-6, "MICROSECONDS": 1e-3, "MILLISECONDS": 1, "SECONDS": 1000, "MINUTES": 60_000,
    "HOURS": 3_600_000, "DAYS": 86_400_000,
}  # fmt: skip


def read(roots: Sequence[Node], draft: Draft) -> None:
    draft.open = False  # a connection has to log in unless a security plug-in says otherwise
    for root in roots:
        for node in root.find(*CONSUMERS):
            _sweep(node, draft)
            _consumer(node, draft)
        for node in root.find("checkPeriod"):
            with draft.reading(node):
                draft.put_sweep(units.number(node), node)
        for node in list(root.walk()):
            if node.child("maximumQueueDepth", "maximumMessageCount", "maximumMessageAge", "capacity") is not None:
                _alerts(node, draft)
        for connector in root.find("connector"):
            _connector(connector, draft)
        draft.leftovers(root)
    draft.policies.sort(key=_rank)


def _rank(policy: PolicyDraft) -> int:
    """Returns the place of a policy. What is said of a queue by its name counts more than what is said of its topics,
    and that more than what is said of all queues: subscribers of topics over AMQP have queues."""
    first = policy.topics[0]
    return 1 if not first.startswith("$queue/") else 2 if first == QUEUES else 0


def _place(node: Node) -> tuple[str, tuple[str, ...], Node | None]:
    """Returns what limits are for: a name for the policy, its filters, and the setting that says so. Raises
    Unreadable."""
    above: Node | None = node.parent
    inside = node
    while above is not None:
        if above.name == "topic":
            named = above.child("subscriptionName")
            if named is not None and named.text:
                return f"subscription {named.shown}", _queue_filters(named), named
            named = above.child("key", "name")
            if named is not None and named.text:
                return f"topic {named.shown}", (from_words(named.text),), named
        named = _name_beside(inside) or (above.child("name") if above.name == "queue" else None)
        if named is not None and above.name in ("queue", "queues"):
            return f"queue {named.shown}", _queue_filters(named), named
        if above.name in ("queues", "queue"):
            return "all queues", (QUEUES,), None
        if above.name == "topics":
            return "all topics", ("#",), None
        inside, above = above, above.parent
    return "consumers", ("#",), None


def _queue_filters(named: Node) -> tuple[str, ...]:
    """Returns the filters for a queue, or for queues with such names: that of its name; and, as a durable subscription
    of a client, those of its queue here. Where the client's name ends is not told, if there are more colons than one.
    Raises Unreadable."""
    name = named.text
    if len(name.encode()) > NAME_BYTES_MAX:
        raise Unreadable(f"a queue's name has at most {NAME_BYTES_MAX} bytes", named)
    ends = [at for at, char in enumerate(name) if char == ":" and 0 < at < len(name) - 1]
    names = [name, *(f"durable.{name[:at]}.{name[at + 1 :]}" for at in ends)]
    rest = ">" if ">" in name else "#"
    return tuple(dict.fromkeys(queue_filter(one, every=("*", "**", rest), rest=rest) for one in names))


def _name_beside(node: Node) -> Node | None:
    """Returns the name of which an element is made: ``<name>ping</name><ping>…</ping>``. What stands before a colon in
    it was left out as a prefix."""
    beside = node.parent.all("name") if node.parent is not None else []
    return next((one for one in beside if one.text.rpartition(":")[2] == node.name), None)


def _sweep(consumer: Node, draft: Draft) -> None:
    """Reads how often the other broker looks at consumers."""
    delay, unit = consumer.child("delay"), consumer.child("timeunit")
    with draft.reading(delay, unit):
        word = unit.text.upper() if unit is not None else "SECONDS"
        if word not in _TIMES_MS:
            shown = unit.shown[:40] if unit is not None else ""
            raise Unreadable(f"{shown!r} is no unit of time: {', '.join(_TIMES_MS)}", unit)
        if delay is not None:
            draft.put_sweep(round(units.number(delay) * _TIMES_MS[word]), delay, unit)


def _consumer(consumer: Node, draft: Draft) -> None:
    when: list[dict[str, Any]] = []
    given: list[Node] = []
    for node in consumer.all(*_LIMITS):
        with draft.reading(node):
            meter, read = _LIMITS[node.name]
            when.append({meter: read(node)})
            given.append(node)
    if not when:
        return
    with draft.reading(*given):
        then = _action(consumer, draft)
        name, filters, named = _place(consumer)
        source = "; ".join(said(node, "a misprint of messageAge" if node.name == _MISPRINT else "") for node in given)
        policy = draft.policy(name, filters, said(named) if named is not None else "")
        policy.add(rule(then, {"any": when} if len(when) > 1 else when[0], name="slow consumer"), source)
        draft.carried(*given, named, consumer)


def _action(consumer: Node, draft: Draft) -> dict[str, Any]:
    """Reads the policy's name and its options."""
    then: dict[str, Any] = {"action": "delete_subscription"}
    for policy in consumer.find("policy"):
        named = policy.child("name")
        if named is not None and named.text.lower() not in ("delete", "topicdelete"):
            raise Unreadable(f"the policy {named.shown[:40]!r} is not known", named)
        draft.carried(named, policy)
    for option in consumer.find("option"):
        named, text = option.child("name"), option.child("value")
        if named is None or named.text != "delete-persistent":
            continue
        wanted = text is None or units.true(text)
        then |= {"durable": True} if wanted else {}
        draft.carried(named, text)
    for node in consumer.find("delete-persistent"):
        if not node.text or units.true(node):
            then["durable"] = True
        draft.carried(node)
    return then


def _alerts(around: Node, draft: Draft) -> None:
    """Reads alerts and the flow control of a queue, or of all queues of a virtual host."""
    depth, count, age, capacity, resume = [
        around.child(name)
        for name in ("maximumQueueDepth", "maximumMessageCount", "maximumMessageAge", "capacity", "flowResumeCapacity")
    ]
    alerts: list[Node] = []
    when: list[dict[str, Any]] = []
    for node, meter, read in (
        (depth, "lag_bytes", units.size_limit), (count, "lag_records", units.limit), (age, "lag_age", units.time_limit)
    ):
        with draft.reading(node):
            if node is not None:
                when.append({meter: read(node)})
                alerts.append(node)
    with draft.reading(*alerts, capacity, resume):
        name, filters, named = _place(next(iter(around.children)))
        if filters == ("#",):
            name, filters = "all queues", (QUEUES,)
        policy = draft.policy(name, filters, said(named) if named is not None else "")
        if when:
            source = "; ".join(said(node) for node in alerts)
            policy.add(rule("notify", {"any": when} if len(when) > 1 else when[0], name="alert"), source)
        if capacity is not None and units.size(capacity):
            until = {"until": {"lag_bytes": f"<= {units.same_size(resume)}"}} if resume is not None else {}
            flow = rule("block_publishers", {"lag_bytes": units.same_size(capacity)}, name="flow control", **until)
            policy.add(flow, said(capacity))
        draft.carried(*alerts, capacity, resume, named)


def _connector(connector: Node, draft: Draft) -> None:
    bind, buffer, tls = (connector.child(name) for name in ("bind", "socketSendBuffer", "ssl"))
    alone = tls is not None and tls.value("sslOnly").lower() == "true"
    for port in connector.all("port"):
        if alone:
            draft.lost(port, why="with sslOnly nobody connects without TLS, and a keystore of Java is not read")
            continue
        with draft.reading(port):
            listener = draft.listener("qpid", "amqp", bind.text if bind is not None else "", units.number(port), port)
            if listener is not None:
                draft.carried(bind)
    draft.put_read(draft.tables["server"], "send_buffer", _buffer, buffer)


def _buffer(node: Node) -> str:
    return units.toml_size(units.within(units.size(node), 4000, 64_000_000, node, "4 kB to 64 MB"))


QPID = Origin(
    "qpid", "Qpid", ("qpid-java",), read_xml, read, xml=True, marks=("<connector>",),
    signs=("consumer", "depth", "virtualhost", "virtualhosts", "topicDelete"),
)  # fmt: skip
