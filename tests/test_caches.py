"""All caches of the broker, and all tables that it has once: what ends each of them, in bytes.

A cache that is not listed here fails a test, and so does an entry of the list that is no cache any more. Who adds one
says what a client may put into it, and what its limit is.
"""

from __future__ import annotations

import ast
import gc
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.core.stage import Stage

from headway.core.base import RecentCache, Refused
from headway.core.log import Pool
from headway.core.log.states import Retained
from headway.core.message import topics
from headway.core.message.record import Properties, Record
from headway.core.routing.matching.router import Router
from headway.core.selector import compile_selector
from headway.core.selector import selector as building
from headway.server.journal import entries as entry_codec

ROOT = Path(__file__).parents[1] / "src" / "headway"
CACHES_BYTES_MAX = 100_000_000
"""All caches that no pool counts, together, filled by somebody who means harm."""

FIXED = "no client chooses its keys"
ENDS: dict[str, int | str] = {
    # RecentCache: bytes_max
    "core/message/topics.py _matchers": topics.MATCHERS_BYTES_MAX,
    "core/selector/selector.py _compiled": building.COMPILED_BYTES_MAX,
    "core/selector/selector.py _readers": building.READERS_BYTES_MAX,
    "server/journal/entries.py _encoded": entry_codec.HEADERS_BYTES_MAX,
    "server/journal/entries.py _headers": entry_codec.HEADERS_BYTES_MAX,
    # lru_cache: entries, by the largest key, by how much larger the value may be
    "core/log/lanes/chunk.py multiples": 2_000_000,  # CHUNK_BYTES / size entries of 4 bytes each, for sizes 1 to 256
    "core/message/record.py parse_patience": 256 * 1_000,
    "core/message/keys.py compile_key": 1024 * 8_000,
    "core/selector/selector.py compile_ordering": 256 * 16_000,
    "wire/amqp/properties.py _cached": 1024 * 256 * 40,
    "wire/amqp/kept.py _read_lately": 256 * 512 * 40,
    "wire/amqp1/properties.py _read_lately": 256 * 512 * 40,
    "wire/amqp1/properties.py _lead_lately": 256 * 512 * 8,
    "wire/openwire/maps.py _read_lately": 256 * 512 * 40,
    "wire/openwire/envelope.py _destinations_lately": 1024 * 256 * 10,
    "wire/openwire/marshalling.py _known": 4096 * 256 * 6,
    "wire/openwire/marshalling.py _written_lately": 512 * 1000 * 6,
    "wire/openwire/messages.py _producers_lately": 1024 * 256 * 6,
    "wire/stomp/destinations.py _read_lately": 1024 * 200 * 10,
    "wire/stomp/envelope.py _written_lately": 1024 * 1024 * 8,
    "wire/amqp/kept.py _mark": FIXED,
    "wire/amqp/properties.py _there": 256 * 4_000,
    "wire/dialect.py form_of": 256 * 4_000,
    "wire/dialect.py _known_form": 32 * 4096 * 32,
    # cache
    "server/admin/javascript.py _modules": FIXED,
    "server/config/host_limits.py memory_bytes": FIXED,
    "server/config/presets/__init__.py preset_text": FIXED,
    "server/config/reading.py _default_tables": FIXED,
    "server/config/reading.py default_text": FIXED,
    "server/console/pages.py pages": FIXED,
    "server/websocket/frames.py unmasking": FIXED,
    "store/rows.py arrow_schema": FIXED,
    "wire/codecs.py codecs": FIXED,
    "wire/codecs.py queue_form": FIXED,
}  # fmt: skip
"""What each cache takes up at most, in bytes; or why it has an end."""


COUNTED = "its objects are on a tab (core/log/lanes/pool.py)"
WITHIN_A_TURN = "objects that are on a tab, for as long as a turn or a sweep"
TABLES: dict[str, str] = {
    "_Word.next": COUNTED, "_Word.bindings": COUNTED, "Bindings.all": COUNTED, "DirectBindings._by_key": COUNTED,
    "TopicBindings._shapes": "an entry for each binding, which is on a tab",
    "Bindings.exchanges": COUNTED, "HeadersBindings.names": COUNTED,
    "HeadersBindings._by_header": COUNTED, "HeadersBindings._always": COUNTED,
    "Exchanges.queues": COUNTED, "Exchanges.leading_to": COUNTED, "Exchanges._before": COUNTED,
    "Router.feeds": COUNTED, "Router.states": COUNTED, "Router.queues": COUNTED, "Router._by_filter": COUNTED,
    "Router._declared": FIXED, "Router.expiring": FIXED, "Router.ordered": FIXED,
    "Router._looks_at": "an entry for each exchange, which is on a tab",
    "Router._routes": "ROUTES_BYTES_MAX, counted to the pool", "Router._bound": "as _routes",
    "Router._by_headers": "as _routes", "Router._distinct": "as _routes",
    "EndedPublishers._by_number": "ENDED_PUBLISHERS_BYTES_MAX",
    "Overdue.queues": WITHIN_A_TURN, "Overdue._last": WITHIN_A_TURN,
    "Totals.gap_records": "an entry for each reason", "Totals.unpublished_records": "an entry for each kind",
    "Totals.consumers": FIXED, "Totals.slow_consumers": FIXED,
    "Registry.sessions": COUNTED, "Registry.numbers": COUNTED, "Registry.owned": COUNTED,
    "Backpressure.waiting": COUNTED,
    "Registry.watched": COUNTED, "Registry.dirty": WITHIN_A_TURN,
    "Registry.looks_for_room": WITHIN_A_TURN, "Registry.ready_queues": WITHIN_A_TURN,
    "Registry.put_off": WITHIN_A_TURN, "Registry.woken": WITHIN_A_TURN, "Registry.left": WITHIN_A_TURN,
    "Registry.renamed": WITHIN_A_TURN, "Registry.came_elsewhere": WITHIN_A_TURN, "Registry.came_back": WITHIN_A_TURN,
    "Registry.unused": WITHIN_A_TURN, "Registry.cuts": "emptied at the end of each flush",
    "Engine._tasks": FIXED, "Engine._busy": "an entry for each connection",
    "Engine._unserved": "an entry for each connection", "Engine._waiting": "an entry for each connection",
    "Engine._greeting": "an entry for each connection",
    "KeptOrders._orders": "ORDERS_MAX, and its bytes are in the pool",
    "LiveQueries._queries": COUNTED, "LiveQueries._pages": COUNTED, "LiveQueries._rows": COUNTED,
    "Connections.by_listener": FIXED, "Connections._places": "an entry for each connection",
    "Connections._waiting": "an entry for each connection", "Connections.strangers": FIXED,
    "Strangers.left": "an entry for each connection", "Strangers.silent": "an entry for each connection",
    "Strangers.speaking": "an entry for each connection", "Strangers.networks": "an entry for each connection",
    "PasswordChecks._waiting": "an entry for each connection", "PasswordChecks._waiting_suspects": "as _waiting",
    "PasswordChecks._suspects": "SUSPECTS_MAX names of the config's users, with an address",
    "Logins.failed": FIXED, "Logins._trusted": "TRUSTED_MAX users that have logged in, with an address",
    "Guessers._records": "ADDRESSES_MAX addresses", "WaitingThreads._futures": "an entry for each thread",
    "Hook.answers": FIXED, "Hook._allowed": "REMEMBERED_MAX digests",
    "Allowances.counts": FIXED, "Allowances._groups": FIXED,
    "Allowances._known": "UNUSED_MAX users that have logged in, besides those who are there",
    "Due.with_room": COUNTED, "Due.freed": COUNTED, "Allowance.waiting": COUNTED, "Allowance._turns": COUNTED,
    "Spread._left": "a lane has one run on its way to it", "Spread._encoded": "a run's parts, as long as it is spread",
    "Spread._decoded": "a run's parts, as long as it is spread", "WideRecords.coming": "a lane has one of them",
    "Holdings._known": COUNTED, "Retained._tree": "bytes_max, and the pool's tables_limit",
    "State._entries": "its bytes are in the pool, and what goes beyond that is evicted",
    "State._deleted": "DELETES_MAX", "State.seeking": COUNTED, "State.readings": COUNTED, "Place.passes": COUNTED,
    "Focus._lost": COUNTED, "PendingReplies._waiting": "OUT_BYTES_MAX a client, counted as clients' memory",
}  # fmt: skip
"""The dictionaries and queues of the objects that the broker has once, or once for each exchange or user: by class and
attribute, the reason why each has an end."""
TABLES_OF = ("core/routing", "core/allowance.py", "core/query/kept_order.py", "core/live/live_queries.py",
             "core/log/states.py", "server/engine/engine.py", "server/connections/connections.py",
             "server/logins")  # fmt: skip
_TABLES = {"dict", "set", "deque", "defaultdict", "Counter", "OrderedDict", "TopicTree"}


def called(node: ast.expr) -> str:
    while isinstance(node, ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def caches() -> Iterator[str]:
    """Yields the file and name of each cache in the code of the broker."""
    for floor in ("core", "wire", "server", "store", "embed"):
        for path in sorted((ROOT / floor).rglob("*.py")):
            at, text = path.relative_to(ROOT).as_posix(), path.read_text()
            if "cache" not in text.lower():
                continue  # most files; parsing them takes long
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef):
                    if any(called(one) in ("lru_cache", "cache") for one in node.decorator_list):
                        yield f"{at} {node.name}"
                elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                    if called(node.value) in ("lru_cache", "RecentCache"):
                        yield f"{at} {ast.unparse(target)}"


def test_all_caches_are_listed_with_their_ends() -> None:
    there = set(caches())
    assert there - ENDS.keys() == set(), "caches without an end"
    assert ENDS.keys() - there == set(), "these are no caches any more"


def test_all_caches_together_have_an_end() -> None:
    assert sum(end for end in ENDS.values() if isinstance(end, int)) <= CACHES_BYTES_MAX


def tables() -> Iterator[str]:
    """Yields the class and attribute of each table that is empty at first."""
    for place in TABLES_OF:
        for path in [ROOT / place] if place.endswith(".py") else sorted((ROOT / place).rglob("*.py")):
            for owner in [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)]:
                for node in ast.walk(owner):
                    if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                        value = node.value
                        empty = value.keys == [] if isinstance(value, ast.Dict) else called(value) in _TABLES
                        if empty and isinstance(target, ast.Attribute) and isinstance(value, ast.Dict | ast.Call):
                            yield f"{owner.name}.{target.attr}"


def test_all_tables_are_listed_with_their_ends() -> None:
    there = set(tables())
    assert there - TABLES.keys() == set(), "tables without an end"
    assert TABLES.keys() - there == set(), "these are no tables any more"


# What they take up, measured: many entries of somebody who means harm.


def kept_bytes(fill: Callable[[int], object], times: int) -> int:
    """Returns the memory that is kept when ``fill`` was called so often."""
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(times):
            fill(number)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def header(number: int) -> tuple[Any, ...]:
    user = tuple((f"{number}.{pair}", "é€") for pair in range(125))
    return "t", "amq.topic", None, 0, False, Properties(user=user), "p"


PART = 8
"""Limits are this part of what they are, so that little fills a cache."""
FILLS: dict[str, tuple[RecentCache[Any, Any], Callable[[int], object], int]] = {
    "journal-headers": (entry_codec._encoded, lambda number: entry_codec._encoded[header(number)], 150),
    "journal-headers-read": (
        entry_codec._headers, lambda number: entry_codec._headers[entry_codec._encode(header(number))], 150,
    ),
    "selectors": (
        building._compiled,
        lambda number: compile_selector(" OR ".join(f"a{number}_{name}" for name in range(125))), 30,
    ),
    "selectors-with-like": (
        building._compiled,
        lambda number: compile_selector(" OR ".join(f"a LIKE '%{number}_{at}%_x'" for at in range(38))), 60,
    ),
    "bad-selectors": (building._compiled, lambda number: bad(f"a = {number} AND ' {'é' * 4000}"), 125),
    "filters": (topics._matchers, lambda number: topics.matcher(f"{number}/" + "+/é/" * 60 + "#"), 125),
}


def bad(text: str) -> None:
    with pytest.raises(building.BadSelector):
        compile_selector(text)


@pytest.mark.parametrize(("cache", "fill", "times"), FILLS.values(), ids=FILLS)
def test_cache_keeps_no_more_bytes_than_its_limit(
    cache: RecentCache[Any, Any], fill: Callable[[int], object], times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for one in (cache, building._readers):
        one.forget()
        monkeypatch.setattr(one, "bytes_max", one.bytes_max // PART)
    kept = kept_bytes(fill, times)
    assert len(cache) > 1, "it keeps some"
    assert cache.young_bytes * 2 <= cache.bytes_max
    assert cache._old, "it is full"
    readers = building._readers.bytes_max if cache is building._compiled else 0
    assert kept <= 1.1 * (cache.bytes_max + readers)
    cache.forget()


def test_values_used_again_and_again_stay_in_a_cache() -> None:
    made = list[int]()
    cache = RecentCache(lambda key: made.append(key) or str(key), 1000, lambda key, value: 10)
    for number in range(1000):
        assert (cache[-1], cache[number]) == ("-1", str(number))
    assert made.count(-1) == 1
    assert len(cache) + len(cache._old) <= 100
    assert cache[5] == "5", "it is made anew"
    assert made.count(5) == 2


def test_a_value_that_would_push_out_many_others_is_not_kept() -> None:
    cache = RecentCache(lambda key: key, 1000, lambda key, value: key)
    assert cache[251] == 251
    assert not cache
    assert cache[250] == 250
    assert cache


@pytest.mark.parametrize("topic", ["{}", "{}/" + "x" * 2000, "{}/" + "x" * 65_000, "{}/😀" + "x" * 900])
def test_routes_of_topics_without_readers_are_counted_and_have_an_end(topic: str) -> None:
    pool = Pool("p", 100_000_000, 0)
    router = Router(pool)
    kept = kept_bytes(lambda number: router.route(topic.format(number)), 3000)
    assert kept <= 1.1 * pool.tables_bytes + 1_000_000
    assert pool.tables_bytes <= pool.tables_limit // 2
    router.forget()
    assert pool.tables_bytes == 0


def test_routes_share_what_they_lead_to() -> None:
    stage = Stage(memory="64MB")
    stage.client("c").subscribe("t/#")
    router = stage.broker.registry.router
    assert router.route("t/1") is router.route("t/2")
    assert router.route("other") is not router.route("t/1")


@pytest.mark.parametrize(
    "properties",
    [
        Properties(user=tuple(("é" * 20, "") for _ in range(1000))), Properties(user=(("a", "x" * 60_000 + "😀"),)),
        Properties(user=tuple((f"{n}", f"{n}") for n in range(1000))), Properties(),
    ],
    ids=["pairs", "wide", "small-pairs", "none"],
)  # fmt: skip
def test_retained_records_count_to_the_pool_by_their_memory(properties: Properties) -> None:
    pool, retained = Pool("p", 100_000_000, 0), Retained()
    retained.pool = pool

    def put(number: int) -> None:
        user = tuple((name + "", value + str(number)) for name, value in properties.user)
        retained.put(Record("/".join(f"{number}-{level}" for level in range(20)), b"x", Properties(user=user)))

    kept = kept_bytes(put, 100)
    assert 0.9 * kept <= pool.tables_bytes <= 3 * kept
    for topic in retained.topics():
        retained.put(Record(topic, b""))
    assert pool.tables_bytes == retained.bytes == 0


def test_no_more_is_retained_than_the_pool_has_room_for() -> None:
    stage = Stage(memory="4MB")
    publisher = stage.client("p")
    for number in range(12):
        record = Record(f"t/{number}", bytes(500_000), retain=True)
        with suppress(Refused):
            stage.broker.publish(publisher.session, [record.run()], stage.now)
    pool, retained = stage.broker.registry.pools[""], stage.broker.retained
    assert 5 <= len(retained) < 12
    assert pool.tables_bytes <= pool.tables_limit
