"""ActiveMQ and JBoss A-MQ: ``activemq.xml``, whole or in fragments.

Rules:
- A strategy that stands in no ``policyEntry`` is for all topics.
- The pending limit is for transient subscriptions to topics only, as there. Where a destination has one, it gets two
  policies: one for transient subscriptions with all rules, and one for durable ones with the others.
- ActiveMQ gives a consumer that sets no prefetch one of 32,766, or of ``topicPrefetch``. So a multiple of the prefetch
  is a multiple of that for consumers which have none here: MQTT at QoS 0, STOMP with ``ack:auto``.
- ActiveMQ has a consumer for slow when its window is full. Here that is ``credit_exhausted_time``, or ``blocked_time``
  for one without a window.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

from headway.core.base import parse_duration
from headway.core.message import has_wildcard
from headway.migration.draft import (
    TELL,
    Draft,
    Keyed,
    ListenerDraft,
    SoAnyway,
    Unreadable,
    discard,
    from_dotted,
    queue_filter,
    rule,
    said,
    uncovered,
    units,
)
from headway.migration.formats import Kind, Node, read_xml
from headway.migration.origins.origin import Origin
from headway.server.protocols import SCHEMES

# -- activemq broker ---------------------------------------------------------------------------------------------------
#
# ActiveMQ's broker itself: its name, transports, limits of the system, and store.


PORTS = ("tcp", "nio", "ssl", "vm")
"""Transports that carry ActiveMQ's own protocol."""
HARMLESS = (
    "cancelDuplicatesBrokerPlugin", "camelRoutesBrokerPlugin", "connectionDotFilePlugin", "destinationDotFilePlugin",
    "destinationPathSeparatorPlugin", "destinationsPlugin", "discardingDLQBrokerPlugin", "forcePersistencyModeBroker",
    "forcePersistencyModeBrokerPlugin", "loggingBrokerPlugin", "multicastTraceBrokerPlugin", "redeliveryPlugin",
    "runtimeConfigurationPlugin", "statisticsBrokerPlugin", "timeStampingBrokerPlugin", "traceBrokerPathPlugin",
    "udpTraceBrokerPlugin", "virtualSelectorCacheBrokerPlugin",
)  # fmt: skip
"""Plug-ins that keep nobody out."""
BEANS = re.compile(
    r"org\.springframework\.(beans\.factory\.config\.(PropertyPlaceholderConfigurer|PropertiesFactoryBean)"
    r"|context\.support\.PropertySourcesPlaceholderConfigurer|jms\..*)|org\.jasypt\..*"
    r"|(org\.fusesource|io\.fabric8)\.(insight\.log\.\w+\.Log\w*Query|mq\.fabric\.ConfigurationProperties)"
    r"|org\.apache\.activemq\.(hooks\.SpringContextHook|broker\.PublishedAddressPolicy|web\.WebConsolePort"
    r"|((spring|(jms\.)?pool)\.)?\w+ConnectionFactory|spring\.Spring(Consumer|Producer)"
    r"|camel\.component\.ActiveMQ\w*|command\.ActiveMQ(Queue|Topic)|(store|leveldb)\..*)"
    r"|(org\.apache\.(camel|commons\.dbcp2?|tomcat\.jdbc\.pool|derby\.jdbc)|org\.(eclipse|mortbay)\.jetty"
    r"|org\.postgresql|oracle\.jdbc|com\.(mysql|zaxxer\.hikari|mchange\.v2\.c3p0))\..*"
)
"""Classes of beans of Spring that keep nobody out of the broker: properties, logs, clients, stores, the web console."""
IMPORTS = ("jetty.xml", "jetty-spring.xml", "camel.xml")
"""Files that ActiveMQ's own import: the web console, with its login; and routes of Camel, which are clients."""
APART = (
    "destinationPolicy", "policyEntry", "persistenceAdapter", "persistenceFactory", "systemUsage", "networkConnectors",
    "jmsBridgeConnectors", "managementContext", "ioExceptionHandler", "camelContext",
)  # fmt: skip
"""Elements within which no bean decides who may come in."""
GROUPS = (
    "transportConnectors", "destinationPolicy", "policyMap", "policyEntries", "persistenceAdapter", "systemUsage",
    "broker", "beans",
)  # fmt: skip
"""Elements that say nothing by themselves."""
_SIMPLE = "simpleAuthenticationPlugin"
"""The plug-in that says itself whether anybody may come in beside the users in it."""
_STORES = ("kahaDB", "amqPersistenceAdapter", "levelDB", "mKahaDB", "replicatedLevelDB")
_DATABASES = ("jdbcPersistenceAdapter", "journaledJDBC", "journalPersistenceAdapterFactory")
_AUTO = {"default", "amqp", "stomp", "mqtt"}
"""Protocols of ``auto``, as ``auto.protocols`` names them."""
_URI = re.compile(r"([a-z0-9+.]+)://(\[[^\]]*\]|[^:/?#]*)(?::([0-9]{1,5}))?[^?]*(?:\?(.*))?", re.DOTALL)


def read_broker(broker: Node, draft: Draft) -> None:
    name, persistent = broker.child("brokerName"), broker.child("persistent")
    if name is not None and "${" not in name.text and name.text.strip().isprintable() and name.text.strip():
        draft.put("server", "name", name.text.strip()[:100], name)
    if persistent is not None:
        with draft.reading(persistent):
            if not units.true(persistent):
                raise SoAnyway("there is no [journal]")
            draft.put_journal(persistent, "")


def read_plugins(root: Node, draft: Draft) -> None:
    """Closes the import if a plug-in may restrict access: every plug-in does that is not known to be harmless."""
    for node in root.walk():
        if node.name == "plugins" and node.text:
            draft.close(node)  # an attribute: beans that stand anywhere
        within = node.parent is not None and node.parent.name == "plugins"
        word = "" if node.within(_SIMPLE) else node.name.lower()
        if "authentication" in word or "authorization" in word or (within and node.name not in HARMLESS):
            anybody = node.child("anonymousAccessAllowed") if node.name == _SIMPLE else None
            if anybody is None or anybody.text.strip() != "true":
                draft.close(node)


def read_spring(root: Node, draft: Draft) -> None:
    """Closes the import if Spring may have more for the broker than this file says: another file, or a bean of a class
    that nobody knows here."""
    for node in root.walk():
        if node.kind is Kind.ATTRIBUTE:
            if node.label.startswith("beans default-"):
                draft.same(node, why="it is about Spring alone")
        elif node.name == "import":
            if re.split("[/:]", node.value("resource"))[-1] not in IMPORTS:
                draft.close(node)
        elif node.name == "bean":
            if not BEANS.fullmatch(node.value("class")) and not node.within(*APART):
                draft.close(node)
        elif node.name == "description" or (node.name in GROUPS and not node.children and not node.text):
            draft.same(node, why="it sets nothing")


def read_usage(root: Node, draft: Draft) -> None:
    pool = draft.tables["pool"]
    draft.put_read(pool, "memory", _memory, *(node.child("limit") for node in root.find("memoryUsage")))
    draft.put_read(pool, "disk", units.same_size, *(node.child("limit") for node in root.find("tempUsage")))


def _memory(node: Node) -> str:
    return units.pool_memory(units.size(node), node)


def _segment(node: Node) -> str:
    return units.toml_size(units.within(units.size(node), 100_000, 1 << 32, node, "100 kB to 4 GiB"))


def read_store(root: Node, draft: Draft) -> None:
    draft.same(*root.find("memoryPersistenceAdapter"))
    if _keeps_nothing(root):
        for store in root.find(*_STORES, *_DATABASES):
            draft.same(*store.walk(), why="the broker is not persistent")
        return
    for node in root.find(*_DATABASES):
        source = node.child("dataSource", "dataDirectory")
        draft.put_journal(source or node, "instead of its database")
    for node in root.find(*_STORES):
        folder = node.child("directory")
        if folder is not None:
            draft.put_journal(folder)
        segment, strategy, interval, syncs = (
            node.child(name)
            for name in (
                "journalMaxFileLength", "journalDiskSyncStrategy", "journalDiskSyncInterval", "enableJournalDiskSyncs",
            )
        )  # fmt: skip
        if folder is None or node.name != "kahaDB":
            continue
        draft.put_read(draft.tables["journal"], "segment", _segment, segment)
        with draft.reading(strategy, interval, syncs):
            _syncs(strategy, interval, syncs, draft)


def _keeps_nothing(root: Node) -> bool:
    """Tells whether no broker of a file keeps its messages."""
    brokers = [broker.value("persistent").lower() for broker in root.find("broker")]
    return bool(brokers) and all(text == "false" for text in brokers)


def _syncs(strategy: Node | None, interval: Node | None, syncs: Node | None, draft: Draft) -> None:
    word = strategy.text.strip().lower() if strategy is not None else ""
    said_by = strategy or syncs
    if said_by is None:
        return
    if word == "periodic":
        time = min(1000, units.milliseconds(interval, default_ms=1000))
        draft.put("journal", "fsync", units.toml_duration(max(1, time)), said_by)
    elif word == "never" or (syncs is not None and not word and not units.true(syncs)):
        draft.put("journal", "fsync", "off", said_by)
    else:
        draft.put("journal", "fsync", "always", said_by)
    draft.carried(strategy, interval, syncs)


class WriteLimit(NamedTuple):
    """The time that a write to clients of a listener may take."""

    listener: str
    time_ms: int
    source: str


def read_transport(connector: Node, draft: Draft) -> list[WriteLimit]:
    """Makes a listener of a connector. Returns the limits of its writes, which are rules of policies."""
    uri, name = connector.child("uri"), connector.child("name")
    writes: list[WriteLimit] = []
    if uri is None:
        return writes
    match = _URI.fullmatch(uri.text.strip())
    listener = None
    if match is None or match[3] is None or "${" in uri.text:
        draft.lost(uri, why="it has no address with a port")
    else:
        query = [
            (key.strip(), text.strip())
            for key, _, text in (part.partition("=") for part in re.split(r"&amp;|&", match[4] or "")) if key
        ]  # fmt: skip
        scheme = _scheme(match[1])
        if scheme.startswith("auto"):
            scheme = _only(scheme, dict(query).get("auto.protocols", ""))
        title = name.text.strip() if name is not None and name.text.strip() else scheme
        listener = draft.listener(title, scheme, match[2] or "", int(match[3]), uri)
        if listener is not None:
            writes = _query(query, uri, listener, draft)
    if listener is not None:
        draft.carried(name)
    else:
        draft.lost(name, why="as its uri")
    return writes


def _scheme(transport: str) -> str:
    """Returns the scheme of a listener for a transport such as ``mqtt+nio+ssl``."""
    words = transport.split("+")
    base = "openwire" if words[0] in PORTS else words[0]
    return f"{base}s" if "ssl" in words else base


def _only(scheme: str, protocols: str) -> str:
    """Returns the scheme of a listener that speaks just those protocols of ``auto`` that are enabled; if there is none,
    words that are no scheme."""
    enabled = _AUTO & {word.strip() for word in unquote(protocols).split(",")} if protocols else _AUTO
    if enabled == _AUTO:
        return scheme
    if len(enabled) != 1:
        return f"{scheme} for {', '.join(sorted(enabled)) or 'no protocol'} only"
    (only,) = enabled
    return scheme.replace("auto", "openwire" if only == "default" else only)


def _query(query: Sequence[tuple[str, str]], uri: Node, listener: ListenerDraft, draft: Draft) -> list[WriteLimit]:
    writes: list[WriteLimit] = []
    for key, text in query:
        node = Node(key, uri.where, text, uri, Kind.ATTRIBUTE)
        with draft.reading(node):
            if key == "maximumConnections":
                connections = units.within(units.number(node), 1, 1_000_000, node, "1 to 1,000,000 connections")
                draft.put_in(listener.keys, "connections_max", connections, node)
            elif key == "wireFormat.maxFrameSize":
                packet_bytes = units.within(units.number(node), 1000, 268_435_460, node, "1 kB to 256 MiB")
                draft.put_in(listener.keys, "packet_max", units.toml_size(packet_bytes), node)
            elif key == "wireFormat.maxInactivityDuration":
                if not listener.scheme.startswith("openwire"):
                    raise Unreadable(f"it is for clients of OpenWire, and the port is for {listener.scheme}")
                time_ms = units.milliseconds(node)
                if not time_ms:
                    raise Unreadable("a client that asks to be watched is, for 30 s of silence at most")
                time_ms = units.within(time_ms, 1000, 65_535_000, node, "1 s to 65,535 s")
                draft.put_in(listener.keys, "keep_alive_max", units.toml_duration(time_ms), node)
            elif key in ("soWriteTimeout", "transport.soWriteTimeout"):
                time_ms = units.set_or(units.milliseconds(node), "a write may take any time")
                writes.append(WriteLimit(listener.name, time_ms, said(node)))
                draft.carried(node)
            elif key == "auto.protocols":
                draft.carried(node)
            elif key in ("needClientAuth", "transport.needClientAuth", "wantClientAuth", "transport.wantClientAuth"):
                if not units.true(node):
                    raise SoAnyway("no certificate of a client is asked for")
                if not SCHEMES[listener.scheme].tls:
                    draft.close(node)
                    raise Unreadable("the transport is without TLS")
                draft.put_in(listener.tls, "verify", "required" if "need" in key else "optional", node)
    return writes


# -- activemq ----------------------------------------------------------------------------------------------------------


SLOW_MS = 30_000
"""The default of ``maxSlowDuration`` and of ``maxTimeSinceLastAck``."""
HIGH_WATER_MARK = 70
TOPIC_PREFETCH = 32_766
TIMES_MAX = 1000
QUEUES = "$queue/+"
EVERY = (QUEUES, "#", "+")
"""Filters of entries for every destination. There each has so much; one pool for all is something else."""
_CUT = {"action": "disconnect", "connection": True}
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
    writes: list[WriteLimit] = []
    for root in roots:
        for broker in root.find("broker"):
            read_broker(broker, draft)
        for node in root.find("transportConnector"):
            writes += read_transport(node, draft)
        read_usage(root, draft)
        read_store(root, draft)
        read_plugins(root, draft)
        read_spring(root, draft)
        entries = root.find("policyEntry")
        for entry in entries:
            _entry(entry, draft)
        alone = [node for node in root.walk() if not node.within("policyEntry") and node.name != "policyEntry"]
        if rules := _strategies(alone, draft, ("#",)):
            _policies("consumers", ("#",), rules, "", draft)
        draft.leftovers(root)
    _spare_queues(draft)
    _limit_writes(writes, draft)


# -- destinations -----------------------------------------------------------------------------------------------------


def _entry(entry: Node, draft: Draft) -> None:
    topic, queue = entry.child("topic"), entry.child("queue")
    named = topic or queue
    filters: tuple[str, ...] = ("#",)
    if named is not None:
        filters, faults = _filters(named)
        if not filters:
            draft.lost_with_all(entry, "; ".join(faults))
            return
        if faults:
            draft.lost(named, why=f"{'; '.join(faults)}; the other destinations in it are carried over")
    rules = _limits(entry, draft, filters, is_queue=queue is not None)
    rules += _strategies(list(entry.walk()), draft, filters)
    _recovery(entry, draft, filters, is_queue=queue is not None)
    if named is None:
        _policies("default entry", filters, rules, str(entry.where), draft)
        return
    _policies(f"{named.name} {named.shown}", filters, rules, said(named), draft)
    if rules:
        draft.carried(named)
    else:
        draft.same(named, why="no rule is needed for what it says")


def _filters(named: Node) -> tuple[tuple[str, ...], list[str]]:
    """Returns the filters for the destinations of an entry, and what is wrong with those that have none."""
    filters: list[str] = []
    faults: list[str] = []
    for part in filter(None, (part.strip() for part in named.text.split(","))):
        try:
            is_queue = named.name == "queue"
            filters.append(queue_filter(part, every=(">", "*", "**"), rest=">") if is_queue else from_dotted(part))
        except Unreadable as error:
            faults.append(str(error))
    return tuple(dict.fromkeys(filters)) if filters or faults else ("#",), faults


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


def _spare_queues(draft: Draft) -> None:
    """Keeps what is for all topics from durable queues, which ``#`` covers, too. (Transient ones are subscribers of
    topics over AMQP.)"""
    wide = [one for one in draft.policies if "#" in one.topics and one.subscriptions != "transient" and one.rules]
    if any(one.name.startswith("topic ") for one in wide) and all(QUEUES not in one.topics for one in draft.policies):
        draft.policy("queues", (QUEUES,), "", "durable").add(TELL, "there nothing is said of queues: it only tells")


def _limit_writes(writes: Sequence[WriteLimit], draft: Draft) -> None:
    """Adds rules that end connections which take nothing for as long as a write may take there. One policy governs a
    consumer, so each policy gets them; where connectors differ, each has its own copies of the policies."""
    limited = {one.listener: one.time_ms for one in writes}
    everywhere = len(set(limited.values())) == 1 and all(one.name in limited for one in draft.listeners)
    before = [one for one in draft.policies if one.rules]
    for time_ms in dict.fromkeys(limited.values()):
        names = () if everywhere else tuple(name for name, one in limited.items() if one == time_ms)
        source = next(one.source for one in writes if one.time_ms == time_ms)
        made = rule(_CUT, {"blocked_time": units.toml_duration(time_ms)}, name="write timeout")
        for policy in before:
            if names:
                shown = f"{policy.name} through {', '.join(names)}"
                copy = draft.policy(shown, policy.topics, policy.source, policy.subscriptions, names)
                copy.rules = [*policy.rules]
                policy = copy
            if not any(_cuts_within(time_ms, one.value) for one in policy.rules):
                policy.add(made, source)
        if rest := uncovered(draft.policies, names):
            draft.policy(f"writes through {', '.join(names)}" if names else "writes", ("#",), "", rest, names).add(
                made, source
            )


def _cuts_within(time_ms: int, made: Mapping[str, Any]) -> bool:
    """Tells whether a rule ends the connection of a client that takes nothing for this time."""
    times = [part["blocked_time"] for part in made["when"].get("any", ()) if "blocked_time" in part]
    return made["then"] == _CUT and "times" not in made and any(parse_duration(one) * 1000 <= time_ms for one in times)


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
    with draft.reading(memory, flow, mark):
        blocks = flow is None or units.true(flow)
        percent = units.number(mark, HIGH_WATER_MARK)
        if memory is None:
            draft.same(flow, why="publishers wait when the pool is full" if blocks else "records go to disk first")
            return rules
        most = units.size(memory)
        if not 0 < percent < 100 or most < 1:
            raise Unreadable(f"{most} bytes, {percent} %: is no limit")
        until = {"lag_bytes": f"<= {units.toml_size(most * percent // 100)}"}
        when = {"lag_bytes": units.toml_size(most)}
        then = "block_publishers" if blocks else "offline"
        rules.append(_Rule(rule(then, when, name="memory limit", until=until), said(memory)))
        draft.carried(memory, flow, mark)
        for filter in filters if most >= units.POOL_BYTES_MIN else ():
            if filter not in EVERY:
                note = "for all of them together" if has_wildcard(filter) else ""
                draft.topic(filter).setdefault("pool", Keyed(units.toml_size(most), said(memory, note)))
    return rules


def _pending(entry: Node, limit: Node, draft: Draft, filters: tuple[str, ...]) -> list[_Rule]:
    which = _eviction(entry, draft, filters)
    if limit.name == "limit":
        records = units.number(limit)
        if records < 0:
            draft.same(limit, why="every record is kept")
            return []
        when = f"> {records}"
        keep: dict[str, Any] = {"keep_records": records}
    else:
        if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", limit.text.strip()):
            raise Unreadable(f"{limit.shown[:40]!r} is not a multiple")
        multiple, assumed = float(limit.text), entry.child("topicPrefetch")
        given = units.not_negative(units.number(assumed), assumed)
        otherwise = int(multiple * (given or TOPIC_PREFETCH))
        amount: Any = f"{multiple:g} x prefetch, else {otherwise}" if multiple else 0
        when = f"> {amount}"
        keep = {"keep_records": amount}
        draft.carried(assumed)
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
    given = duration, count, cut, ack = [
        strategy.child(name) for name in ("maxSlowDuration", "maxSlowCount", "abortConnection", "maxTimeSinceLastAck")
    ]
    rules: list[_Rule] = []
    with draft.reading(*given):
        aborts = cut is not None and units.true(cut)
        then: str | dict[str, Any] = _CUT if aborts else "close_consumer"
        if by_ack:
            time = units.milliseconds(ack, default_ms=SLOW_MS)
            when: dict[str, Any] = {"ack_age": units.toml_duration(time)}
            if time > 0:
                rules.append(_Rule(rule(then, when, name="acknowledges too late"), said(ack or strategy)))
        time = units.milliseconds(duration, default_ms=SLOW_MS)
        if time > 0:
            rules.append(_Rule(rule(then, _slow(time), name="slow for too long"), said(duration or strategy)))
        times = units.number(count, -1)
        if times > TIMES_MAX:
            raise Unreadable(f"{times} times: at most {TIMES_MAX} are counted")
        if times > 0:
            rules.append(_Rule(rule(then, _slow(1000), name="slow too often", times=times), said(count or strategy)))
        draft.carried(strategy, *given)
    period, idle = strategy.child("checkPeriod"), strategy.child("ignoreIdleConsumers")
    with draft.reading(period):
        if period is not None:
            draft.put_sweep(units.milliseconds(period), period)
    with draft.reading(idle):
        if idle is not None and not units.true(idle):
            raise Unreadable("who has nothing to acknowledge is never slow")
        draft.same(idle)
    return rules


def _slow(time_ms: int) -> dict[str, Any]:
    time = units.toml_duration(time_ms)
    return {"any": [{"credit_exhausted_time": time}, {"blocked_time": time}]}


def _recovery(entry: Node, draft: Draft, filters: tuple[str, ...], *, is_queue: bool) -> None:
    """Reads what subscribers get of the time before them."""
    for node in entry.walk():
        if node.name == "lastImageSubscriptionRecoveryPolicy" and not is_queue:
            for filter in filters:
                keys = draft.topic(filter)
                if "pool" in keys:  # a table with nothing else has no key
                    keys.setdefault("key", Keyed("topic", said(node)))
            draft.carried(node)
        for name, write in (("recoverDuration", _time), ("maximumSize", units.same_size)):
            kept = node.child(name) if node.name.endswith("SubscriptionRecoveryPolicy") else None
            if kept is None or is_queue or draft.option(kept) is None:
                continue
            with draft.reading(kept):
                for filter in filters:
                    draft.put_in(draft.topic(filter), "keep", write(kept), kept, "a subscriber asks: option from")
                draft.put_journal(kept, "recorded topics are kept there")
    draft.same(*entry.find("noSubscriptionRecoveryPolicy", "retainedMessageSubscriptionRecoveryPolicy"))
    for node in entry.walk():
        option = draft.option(node)
        if option is not None and option.here.startswith("always so"):
            draft.same(node)


def _time(node: Node) -> str:
    return units.toml_duration(max(1000, units.not_negative(units.milliseconds(node), node)))


ACTIVEMQ = Origin(
    "activemq", "ActiveMQ or JBoss A-MQ", ("a-mq", "amq"), read_xml, read, xml=True,
    marks=("activemq.apache.org/schema/core",),
    signs=("policyMap", "policyEntries", "destinationPolicy", "pendingMessageLimitStrategy",
           "slowConsumerStrategy", "transportConnectors", "systemUsage", "messageEvictionStrategy"),
)  # fmt: skip
