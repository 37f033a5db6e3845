"""ActiveMQ and JBoss A-MQ: ``activemq.xml``, whole or in fragments.

Rules:
- A strategy that stands in no ``policyEntry`` is for all topics.
- The pending limit is for transient subscriptions to topics only, as there. Where a destination has one, it gets two
  policies: one for transient subscriptions with all rules, and one for durable ones with the others.
- ActiveMQ has a consumer for slow when its window is full. Here that is ``credit_exhausted_time``, or ``blocked_time``
  for one without a window.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from headway.migration.draft import (
    Draft,
    ListenerDraft,
    Unreadable,
    discard,
    from_dotted,
    milliseconds,
    number,
    queue_filter,
    rule,
    said,
    size,
    toml_duration,
    toml_size,
    true,
)
from headway.migration.formats import Kind, Node, read_xml
from headway.migration.origins.option_table import options_of
from headway.migration.origins.origin import Origin

SLOW_MS = 30_000
"""The default of ``maxSlowDuration`` and of ``maxTimeSinceLastAck``."""
HIGH_WATER_MARK = 70
TIMES_MAX = 1000
PORTS = ("tcp", "nio", "ssl", "vm")
"""Transports that carry ActiveMQ's own protocol."""
JOURNAL = "/var/lib/headway"
_URI = re.compile(r"([a-z0-9+.]+)://(\[[^\]]*\]|[^:/?#]*)(?::([0-9]{1,5}))?[^?]*(?:\?(.*))?", re.DOTALL)
_EVICTIONS = {
    "oldestMessageEvictionStrategy": "oldest",
    "oldestMessageWithLowestPriorityEvictionStrategy": "lowest_priority",
    "uniquePropertyMessageEvictionStrategy": "older_per_key",
}


class _Rule(NamedTuple):
    rule: dict[str, Any]
    source: str
    transient: bool = False


def read(roots: Sequence[Node], draft: Draft) -> None:
    for root in roots:
        for broker in root.find("broker"):
            _broker(broker, draft)
        for node in root.find("transportConnector"):
            _transport(node, draft)
        _usage(root, draft)
        _store(root, draft)
        if any("Authentication" in node.name or "authorization" in node.name for node in root.walk()):
            draft.open = False
        entries = root.find("policyEntry")
        for entry in entries:
            _entry(entry, draft)
        alone = [node for node in root.walk() if not node.within("policyEntry") and node.name != "policyEntry"]
        if rules := _strategies(alone, draft, ("#",)):
            _policies("consumers", ("#",), rules, "", draft)
        draft.leftovers(root)


# -- destinations -----------------------------------------------------------------------------------------------------


def _entry(entry: Node, draft: Draft) -> None:
    topic, queue = entry.child("topic"), entry.child("queue")
    named = topic or queue
    filters: tuple[str, ...] = ("#",)
    if named is not None:
        try:
            parts = [part.strip() for part in named.text.split(",") if part.strip()]
            form = from_dotted if topic is not None else _queue
            filters = tuple(dict.fromkeys(form(part) for part in parts)) or filters
        except Unreadable as error:
            for node in entry.walk():
                if node.text or not node.children:
                    draft.lost(node, why=str(error))
            return
    rules = _limits(entry, draft, filters, is_queue=queue is not None)
    rules += _strategies(list(entry.walk()), draft, filters)
    _recovery(entry, draft, filters, is_queue=queue is not None)
    if named is None:
        _policies("default entry", filters, rules, str(entry.where), draft)
        return
    _policies(f"{named.name} {named.text}", filters, rules, said(named), draft)
    if rules:
        draft.carried(named)
    else:
        draft.same(named, why="no rule is needed for what it says")


def _queue(name: str) -> str:
    return queue_filter(name, every=(">", "*", "**"))


def _policies(name: str, filters: tuple[str, ...], rules: list[_Rule], source: str, draft: Draft) -> None:
    if not rules:
        return
    lasting = [one for one in rules if not one.transient]
    if len(lasting) == len(rules):
        kinds = {"all": rules}
    else:
        kinds = {"transient": rules, "durable": lasting}
    for kind, some in kinds.items():
        if some:
            shown = name if kind != "durable" else f"{name}, durable"
            policy = draft.policy(shown, filters, source, kind)
            for one in some:
                policy.add(one.rule, one.source)


def _limits(entry: Node, draft: Draft, filters: tuple[str, ...], *, is_queue: bool) -> list[_Rule]:
    """Reads limits of what may wait: the pending limit, and the memory of the destination."""
    rules: list[_Rule] = []
    for node in entry.find("constantPendingMessageLimitStrategy", "prefetchRatePendingMessageLimitStrategy"):
        limit = node.child("limit", "multiplier")
        if limit is None:
            continue
        if is_queue:
            draft.lost(limit, why="ActiveMQ has it for topics only")
            continue
        with draft.reading(limit):
            rules += _pending(entry, limit, draft, filters)
    names = ("memoryLimit", "producerFlowControl", "cursorMemoryHighWaterMark")
    memory, flow, mark = (entry.child(name) for name in names)
    with draft.reading(*(node for node in (memory, flow, mark) if node is not None)):
        blocks = flow is None or true(flow)
        percent = number(mark) if mark is not None else HIGH_WATER_MARK
        if memory is None:
            if flow is not None:
                draft.same(flow, why="publishers wait when the pool is full" if blocks else "records go to disk first")
            return rules
        most = size(memory)
        if not 0 < percent < 100 or most < 1:
            raise Unreadable(f"{most} bytes, {percent} %: is no limit")
        until = {"lag_bytes": f"<= {toml_size(most * percent // 100)}"}
        when = {"lag_bytes": toml_size(most)}
        then = "block_publishers" if blocks else "offline"
        rules.append(_Rule(rule(then, when, name="memory limit", until=until), said(memory)))
        draft.carried(*(node for node in (memory, flow, mark) if node is not None))
    return rules


def _pending(entry: Node, limit: Node, draft: Draft, filters: tuple[str, ...]) -> list[_Rule]:
    which = _eviction(entry, draft, filters)
    if limit.name == "limit":
        records = number(limit)
        if records < 0:
            draft.same(limit, why="every record is kept")
            return []
        when = f"> {records}"
        keep: dict[str, Any] = {"keep_records": records}
    else:
        if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", limit.text.strip()):
            raise Unreadable(f"{limit.text[:40]!r} is not a multiple")
        when = f"> {float(limit.text):g} x prefetch"
        keep = {"keep_records": when[2:]} if which != "older_per_key" else {}
    draft.carried(limit)
    if which == "older_per_key":
        keep = {}
    rules = rule(discard(which, **keep), {"lag_records": when}, name="pending limit")
    return [_Rule(rules, said(limit), transient=True)]


def _eviction(entry: Node, draft: Draft, filters: tuple[str, ...]) -> str:
    """Returns which records a pending limit discards."""
    for node in entry.find(*_EVICTIONS):
        key = node.child("propertyName")
        if node.name != "uniquePropertyMessageEvictionStrategy":
            draft.carried(node)
        elif key is not None and key.text.strip():
            for filter in filters:
                draft.put_in(draft.topic(filter), "key", f"property:{key.text.strip()}", key)
            draft.carried(node, key)
        else:
            continue
        return _EVICTIONS[node.name]
    return "oldest"


def _strategies(nodes: Sequence[Node], draft: Draft, filters: tuple[str, ...]) -> list[_Rule]:
    """Reads the strategies for slow consumers; and, outside of any entry, pending limits."""
    rules: list[_Rule] = []
    for node in nodes:
        if node.name in ("abortSlowConsumerStrategy", "abortSlowAckConsumerStrategy"):
            rules += _abort(node, draft)
        elif not node.within("policyEntry") and node.name.endswith("PendingMessageLimitStrategy"):
            limit = node.child("limit", "multiplier")
            if limit is not None:
                with draft.reading(limit):
                    rules += _pending(node, limit, draft, filters)
    return rules


def _abort(strategy: Node, draft: Draft) -> list[_Rule]:
    by_ack = strategy.name == "abortSlowAckConsumerStrategy"
    duration, count, cut, ack = (
        strategy.child(name) for name in ("maxSlowDuration", "maxSlowCount", "abortConnection", "maxTimeSinceLastAck")
    )
    given = [node for node in (duration, count, cut, ack) if node is not None]
    rules: list[_Rule] = []
    with draft.reading(*given):
        then = "disconnect" if cut is not None and true(cut) else "close_consumer"
        if by_ack:
            time = milliseconds(ack) if ack is not None else SLOW_MS
            when: dict[str, Any] = {"ack_age": toml_duration(time)}
            if time > 0:
                rules.append(_Rule(rule(then, when, name="acknowledges too late"), said(ack or strategy)))
        time = milliseconds(duration) if duration is not None else SLOW_MS
        if time > 0:
            rules.append(_Rule(rule(then, _slow(time), name="slow for too long"), said(duration or strategy)))
        times = number(count) if count is not None else -1
        if times > TIMES_MAX:
            raise Unreadable(f"{times} times: at most {TIMES_MAX} are counted")
        if times > 0:
            rules.append(_Rule(rule(then, _slow(1000), name="slow too often", times=times), said(count or strategy)))
        draft.carried(strategy, *given)
    period, idle = strategy.child("checkPeriod"), strategy.child("ignoreIdleConsumers")
    if period is not None:
        draft.same(period)
    if idle is not None:
        with draft.reading(idle):
            if true(idle):
                draft.same(idle)
            else:
                draft.lost(idle, why="who has nothing to acknowledge is never slow")
    return rules


def _slow(time_ms: int) -> dict[str, Any]:
    time = toml_duration(time_ms)
    return {"any": [{"credit_exhausted_time": time}, {"blocked_time": time}]}


def _recovery(entry: Node, draft: Draft, filters: tuple[str, ...], *, is_queue: bool) -> None:
    """Reads what subscribers get of the time before them."""
    for node in entry.walk():
        if node.name == "lastImageSubscriptionRecoveryPolicy" and not is_queue:
            for filter in filters:
                draft.topic(filter)
            draft.carried(node)
        for name, write in (("recoverDuration", _time), ("maximumSize", _size)):
            kept = node.child(name) if node.name.endswith("SubscriptionRecoveryPolicy") else None
            if kept is None or is_queue or draft.option(kept) is None:
                continue
            with draft.reading(kept):
                for filter in filters:
                    draft.put_in(draft.topic(filter), "keep", write(kept), kept, "a subscriber asks: option from")
                draft.put("journal", "path", JOURNAL, kept, "recorded topics are kept there")
    for node in entry.find("noSubscriptionRecoveryPolicy", "retainedMessageSubscriptionRecoveryPolicy"):
        draft.same(node)
    for node in entry.walk():
        option = draft.option(node)
        if option is not None and option.here.startswith("always so"):
            draft.same(node)


def _time(node: Node) -> str:
    return toml_duration(max(1000, milliseconds(node)))


def _size(node: Node) -> str:
    return toml_size(size(node))


# -- the broker -------------------------------------------------------------------------------------------------------


def _broker(broker: Node, draft: Draft) -> None:
    name, persistent = broker.child("brokerName"), broker.child("persistent")
    if name is not None and "${" not in name.text and name.text.strip().isprintable() and name.text.strip():
        draft.put("server", "name", name.text.strip()[:100], name)
    if persistent is not None:
        with draft.reading(persistent):
            if true(persistent):
                draft.put("journal", "path", JOURNAL, persistent)
            else:
                draft.same(persistent, why="there is no [journal]")


def _usage(root: Node, draft: Draft) -> None:
    for usage, key in (("memoryUsage", "memory"), ("tempUsage", "disk")):
        for node in root.find(usage):
            limit = node.child("limit")
            if limit is None:
                continue
            with draft.reading(limit):
                if key == "memory" and size(limit) < 1_000_000:
                    raise Unreadable(f"{limit.text}: a pool has 1 MB at least")
                draft.put("pool", key, toml_size(size(limit)), limit)


def _store(root: Node, draft: Draft) -> None:
    for node in root.find("memoryPersistenceAdapter"):
        draft.same(node)
    for node in root.find("kahaDB", "amqPersistenceAdapter", "levelDB", "mKahaDB"):
        folder = node.child("directory")
        if folder is not None:
            draft.put("journal", "path", JOURNAL, folder, "in a folder of its own")
        segment, strategy, interval, syncs = (
            node.child(name)
            for name in (
                "journalMaxFileLength", "journalDiskSyncStrategy", "journalDiskSyncInterval", "enableJournalDiskSyncs",
            )
        )  # fmt: skip
        if folder is None or node.name != "kahaDB":
            continue
        if segment is not None:
            with draft.reading(segment):
                bytes_ = size(segment)
                if not 100_000 <= bytes_ <= 1 << 32:
                    raise Unreadable(f"{segment.text}: from 100 kB to 4 GiB")
                draft.put("journal", "segment", toml_size(bytes_), segment)
        with draft.reading(*(one for one in (strategy, interval, syncs) if one is not None)):
            _syncs(strategy, interval, syncs, draft)


def _syncs(strategy: Node | None, interval: Node | None, syncs: Node | None, draft: Draft) -> None:
    word = strategy.text.strip().lower() if strategy is not None else ""
    said_by = strategy or syncs
    if said_by is None:
        return
    if word == "periodic":
        time = min(1000, milliseconds(interval)) if interval is not None else 1000
        draft.put("journal", "fsync", toml_duration(max(1, time)), said_by)
    elif word == "never" or (syncs is not None and not word and not true(syncs)):
        draft.put("journal", "fsync", "off", said_by)
    else:
        draft.put("journal", "fsync", "always", said_by)
    draft.carried(*(one for one in (strategy, interval, syncs) if one is not None))


def _transport(connector: Node, draft: Draft) -> None:
    uri, name = connector.child("uri"), connector.child("name")
    if uri is None:
        return
    match = _URI.fullmatch(uri.text.strip())
    if match is None or match[3] is None or "${" in uri.text:
        draft.lost(uri, why="it has no address with a port")
    else:
        words = match[1].split("+")
        base = "openwire" if words[0] in PORTS else words[0]
        secure = "ssl" in words and base not in ("wss", "https")
        scheme = f"{base}s" if secure else base
        title = name.text.strip() if name is not None and name.text.strip() else scheme
        listener = draft.listener(title, scheme, match[2] or "", int(match[3]), uri)
        if listener is not None:
            _query(match[4] or "", uri, listener, draft)
    if name is not None and uri.said:
        draft.carried(name) if draft.outcomes[-1].result == "carried over" else draft.lost(name, why="as its uri")


def _query(query: str, uri: Node, listener: ListenerDraft, draft: Draft) -> None:
    for part in re.split(r"&amp;|&", query):
        key, _, text = part.partition("=")
        if not key:
            continue
        node = Node(key.strip(), uri.where, text.strip(), uri, Kind.ATTRIBUTE)
        with draft.reading(node):
            if key == "maximumConnections":
                if not 1 <= number(node) <= 1_000_000:
                    raise Unreadable(f"{text}: from 1 to 1,000,000 connections")
                draft.put_in(listener.keys, "connections_max", number(node), node)
            elif key == "wireFormat.maxFrameSize":
                if not 1000 <= number(node) <= 268_435_460:
                    raise Unreadable(f"{text}: from 1 kB to 256 MiB")
                draft.put_in(listener.keys, "packet_max", toml_size(number(node)), node)
            elif key in ("needClientAuth", "transport.needClientAuth", "wantClientAuth", "transport.wantClientAuth"):
                if true(node):
                    word = "required" if "need" in key else "optional"
                    draft.put_in(listener.tls, "verify", word, node)
                else:
                    draft.same(node, why="no certificate of a client is asked for")


ACTIVEMQ = Origin(
    "activemq", "ActiveMQ or JBoss A-MQ", ("a-mq", "amq"), options_of("activemq"), read_xml, read, xml=True,
    signs=("broker", "policyMap", "policyEntries", "destinationPolicy", "pendingMessageLimitStrategy",
           "slowConsumerStrategy", "transportConnectors", "systemUsage", "messageEvictionStrategy"),
)  # fmt: skip
