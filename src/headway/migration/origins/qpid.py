"""Apache Qpid's broker in Java, configured in XML: ``config.xml``, ``virtualhosts.xml``, the proposed ``<consumer>``.

Rules:
- A consumer's limits stand in a ``topic`` (with ``key``, or a ``name`` in it), in a ``queue``, in ``topics`` or
  ``queues`` for all of these, or alone. A topic there is a queue bound to ``amq.topic``; here that is a topic filter.
- Of several limits each one fires. Durable subscriptions are spared unless ``delete-persistent`` says otherwise.
- Limits of a queue that only raise an alert there are rules that only notify.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headway.migration.draft import Draft, Unreadable, from_words, queue_filter, rule, said, units
from headway.migration.formats import Node, read_xml
from headway.migration.origins.origin import Origin

CONSUMERS = ("consumer", "slow-consumer", "slow-consumer-detection")
_LIMITS: Mapping[str, tuple[str, Callable[[Node], Any]]] = {
    "depth": ("lag_bytes", units.number), "messageCount": ("lag_records", units.number),
    "messageAge": ("lag_age", units.same_time),
    "maessageAge": ("lag_age", units.same_time),  # so the design of the slow consumer policy spells it
}  # fmt: skip
"""The meter of each limit of a consumer, and what reads the limit."""


def read(roots: Sequence[Node], draft: Draft) -> None:
    draft.open = False  # a connection has to log in unless a security plug-in says otherwise
    for root in roots:
        for node in root.find(*CONSUMERS):
            draft.same(*node.all("delay", "timeunit"))
            _consumer(node, draft)
        for node in list(root.walk()):
            if node.child("maximumQueueDepth", "maximumMessageCount", "maximumMessageAge", "capacity") is not None:
                _alerts(node, draft)
        for connector in root.find("connector"):
            _connector(connector, draft)
        draft.leftovers(root)


def _place(node: Node) -> tuple[str, str, Node | None]:
    """Returns what limits are for: a name for the policy, the filter, and the setting that says so. Raises
    Unreadable."""
    above: Node | None = node.parent
    inside = node
    while above is not None:
        if above.name == "topic":
            named = above.child("key", "name")
            if named is not None and named.text:
                return f"topic {named.text}", from_words(named.text), named
            if above.child("subscriptionName") is not None:
                raise Unreadable("a policy is for topics, not for one subscription")
        named = _name_beside(inside)
        if named is not None and above.name in ("queue", "queues"):
            return f"queue {named.text}", queue_filter(named.text), named
        if above.name == "queue" and above.child("name") is not None:
            named = above.child("name")
            assert named is not None
            return f"queue {named.text}", queue_filter(named.text), named
        if above.name in ("queues", "queue"):
            return "all queues", "$queue/+", None
        if above.name == "topics":
            return "all topics", "#", None
        inside, above = above, above.parent
    return "consumers", "#", None


def _name_beside(node: Node) -> Node | None:
    """Returns the name of which an element is made: ``<name>ping</name><ping>…</ping>``."""
    beside = node.parent.all("name") if node.parent is not None else []
    return next((one for one in beside if one.text == node.name), None)


def _consumer(consumer: Node, draft: Draft) -> None:
    limits: list[tuple[Node, str, Any]] = []
    given = consumer.all(*_LIMITS)
    with draft.reading(*given):
        for node in given:
            meter, read = _LIMITS[node.name]
            limits.append((node, meter, read(node)))
        if not limits:
            return
        then = _action(consumer, draft)
        name, filter, named = _place(consumer)
        when = [{meter: limit} for _, meter, limit in limits]
        source = "; ".join(said(node) for node, _, _ in limits)
        policy = draft.policy(name, (filter,), said(named) if named is not None else "")
        policy.add(rule(then, {"any": when} if len(when) > 1 else when[0], name="slow consumer"), source)
        draft.carried(*given, named, consumer)


def _action(consumer: Node, draft: Draft) -> dict[str, Any]:
    """Reads the policy's name and its options."""
    then: dict[str, Any] = {"action": "delete_subscription"}
    for policy in consumer.find("policy"):
        named = policy.child("name")
        word = named.text.lower() if named is not None else "delete"
        if word not in ("delete", "topicdelete"):
            raise Unreadable(f"the policy {word[:40]!r} is not known")
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
    given = depth, count, age, capacity, resume = [
        around.child(name)
        for name in ("maximumQueueDepth", "maximumMessageCount", "maximumMessageAge", "capacity", "flowResumeCapacity")
    ]
    with draft.reading(*given):
        name, filter, named = _place(next(iter(around.children)))
        if filter == "#":
            name, filter = "all queues", "$queue/+"
        when: list[dict[str, Any]] = []
        if depth is not None and units.size(depth):
            when.append({"lag_bytes": units.same_size(depth)})
        if count is not None and units.number(count):
            when.append({"lag_records": units.number(count)})
        if age is not None and units.milliseconds(age):
            when.append({"lag_age": units.same_time(age)})
        policy = draft.policy(name, (filter,), said(named) if named is not None else "")
        if when:
            source = "; ".join(said(node) for node in (depth, count, age) if node is not None)
            policy.add(rule("notify", {"any": when} if len(when) > 1 else when[0], name="alert"), source)
        if capacity is not None and units.size(capacity):
            until = {"until": {"lag_bytes": f"<= {units.same_size(resume)}"}} if resume is not None else {}
            flow = rule("block_publishers", {"lag_bytes": units.same_size(capacity)}, name="flow control", **until)
            policy.add(flow, said(capacity))
        draft.carried(*given, named)


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
