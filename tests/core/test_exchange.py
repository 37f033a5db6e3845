"""Exchanges: patterns, headers, chains of exchanges, alternates, and what a change of bindings does."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from random import Random

import pytest
from tests.core.queue_wire import Plain
from tests.server.test_hostile import Lines

from headway.core.base.errors import Refused
from headway.core.consumer.feed import Feed, FeedKey
from headway.core.log.lanes.lane import Lane
from headway.core.log.lanes.pool import Pool
from headway.core.message.record import TOPICS, routing_key_of, topic_of
from headway.core.routing.matching import bindings as bindings_module
from headway.core.routing.matching import router as router_module
from headway.core.routing.matching.bindings import (
    STEPS_MAX,
    WORDS_MAX,
    Binding,
    Destination,
    Exchange,
    ExchangeRoute,
    Exchanges,
    HeadersBindings,
    TopicBindings,
    frozen,
    hashable,
)
from headway.core.routing.matching.router import Router


def queue(name: str) -> Destination:
    return Destination("queue", name)


def exchanges(*bindings: tuple[str, str, str], **kinds: str) -> Exchanges:
    """``bindings``: exchange, key, queue, or ``>exchange``. Exchanges that are not predeclared are in ``kinds``."""
    made = Exchanges()
    for name, kind in kinds.items():
        made.add(Exchange(name, kind))
    for source, key, to in bindings:
        if to[0] == ">":
            made.bind(Binding(source, Destination("exchange", to[1:]), key))
        else:
            made.add_queue(to)
            made.bind(Binding(source, queue(to), key))
    return made


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("a.b", ["a.b"], ["a", "a.b.c", "a.c", ""]),
        ("a.*", ["a.b", "a."], ["a", "a.b.c"]),
        ("*", ["a"], ["a.b", ""]),
        ("#", ["a", "a.b.c", ""], []),
        ("a.#", ["a", "a.b", "a.b.c"], ["b", "ab"]),
        ("#.b", ["b", "a.b", "a.a.b"], ["a", "b.a"]),
        ("a.#.b", ["a.b", "a.x.b", "a.x.y.b"], ["a", "a.x", "b"]),
        ("#.a.#", ["a", "x.a", "a.x", "x.a.y"], ["", "x", "x.y"]),
        ("*.#", ["a", "a.b"], [""]),
        ("#.*.#.*", ["a.b", "a.b.c"], ["a", ""]),
        ("", [""], ["a"]),
        ("a..b", ["a..b"], ["a.b", "a.x.b"]),
    ],
)
def test_patterns(pattern: str, yes: list[str], no: list[str]) -> None:
    made = exchanges((TOPICS, pattern, "q"))
    assert [key for key in yes + no if made.route(TOPICS, key, {}).queues] == yes


def test_any_pattern_against_the_plainest_matcher() -> None:
    """Seeded: the tree says what a regular expression made of the pattern says."""
    rng = Random(7)
    for _ in range(300):
        patterns = {".".join(rng.choice(("a", "b", "*", "#", "")) for _ in range(rng.randint(1, 4))) for _ in range(6)}
        made = exchanges(*((TOPICS, pattern, f"q {pattern}") for pattern in patterns))
        for _ in range(20):
            key = ".".join(rng.choice(("a", "b", "c", "")) for _ in range(rng.randint(1, 5)))
            found = set(made.route(TOPICS, key, {}).queues)
            assert found == {f"q {pattern}" for pattern in patterns if plain(pattern, key)}, (patterns, key)


def plain(pattern: str, key: str) -> bool:
    """Words end with a dot here, so that "#" may stand for none."""
    words = {"*": r"[^.]*\.", "#": r"(?:[^.]*\.)*"}
    expression = "".join(words.get(word, re.escape(word) + r"\.") for word in pattern.split(".")) if pattern else ""
    return re.fullmatch(expression, key + "." if key else "") is not None


def test_a_search_visits_a_node_once_a_word_however_many_wildcards_a_pattern_has() -> None:
    bindings, nodes = TopicBindings(), 1
    for number in range(5):
        pattern = ["*"] * number + ["#"] + ["#", "a"] * 50
        bindings.add(Binding("t", queue(f"q{number}"), ".".join(pattern)))
        nodes += len(pattern)
    for words, fits in ((100, 5), (20, 0), (10_000, 0)):
        assert len(list(bindings.match(".".join(["a"] * words), {}))) == fits
        assert bindings.visited <= nodes * (min(words, WORDS_MAX) + 1)


def widest(number: int) -> str:
    """A pattern that a key of many ``a`` is held against at each of its words, and does not match."""
    words = f"{number:010b}".replace("0", "a.#.").replace("1", "*.#.")
    return f"#.{words}z"


SHAPES: dict[str, Callable[[int], str]] = {
    "many hashes": widest,
    "one hash": lambda number: f"#.{'a.' * 61}{number}",
    "stars": lambda number: f"{number:010b}.z".replace("0", "a.").replace("1", "*."),
    "hashes anywhere": lambda number: f"{number:010b}.z".replace("0", "a.").replace("1", "#."),
    "any word": lambda number: f"#.x{number}.#",
    "two words": lambda number: f"#.x{number}.#.y{number}.#",
    "hash at the end": lambda number: f"{number:010b}".replace("0", "a.").replace("1", "*.") + "#",
    "long": lambda number: ".".join(f"{number:0127b}").replace("0", "a").replace("1", "*"),
}  # fmt: skip
HARD_KEYS = (*(("a." * words)[:-1] for words in (126, 128)), "a." * 126 + "z",
             ".".join(f"x{number}" for number in range(128)))  # fmt: skip


@pytest.mark.parametrize(("shape", "least"), [
    ("many hashes", 2), ("one hash", 1000), ("stars", 600), ("hashes anywhere", 5), ("any word", 1000),
    ("two words", 30), ("hash at the end", 600), ("long", 60),
])  # fmt: skip
def test_search_is_bounded_by_the_patterns_that_an_exchange_takes(shape: str, least: int) -> None:
    bindings, taken = TopicBindings(), 0
    with suppress(Refused):
        for number in range(1000):
            binding = Binding("t", queue("q"), SHAPES[shape](number))
            bindings.check_room(binding)
            bindings.add(binding)
            taken += 1
    assert least <= taken
    for key in HARD_KEYS:
        list(bindings.match(key, {}))
        assert bindings.visited <= bindings.steps <= STEPS_MAX
    bindings.check_room(Binding("t", queue("q"), "plain.words"))
    for binding in list(bindings.all):
        bindings.remove(binding)
    assert bindings.steps == TopicBindings().steps


def bind_all(made: Exchanges, *bindings: Binding) -> int:
    """Binds what there is room for, and returns how much that is."""
    taken = 0
    for binding in bindings:
        with suppress(Refused):
            made.check_room(binding)
            taken += made.bind(binding)
    return taken


def to_exchange(source: str, name: str, key: str = "#") -> Binding:
    return Binding(source, Destination("exchange", name), key)


def full(source: str, shape: str = "many hashes") -> list[Binding]:
    return [Binding(source, queue("q"), SHAPES[shape](number)) for number in range(60)]


def searched_at_most(made: Exchanges, *first: str) -> int:
    lines, most = Lines(), 0
    for name, key in product(first, HARD_KEYS):
        with lines.counted():
            made.route(name, key, {})
        most = max(most, made.visited)
    assert lines.count < 10 * 16_384 * len(first) * len(HARD_KEYS)
    return most


def many(kind: str = "topic", count: int = 60) -> tuple[Exchanges, list[str]]:
    names = [f"e{number}" for number in range(count)]
    made = exchanges(front="fanout", **dict.fromkeys(names, kind))
    made.add_queue("q")
    return made, names


@pytest.mark.parametrize("shape", ["many hashes", "long"])
@pytest.mark.parametrize("first", ["the patterns", "the exchanges"])
@pytest.mark.parametrize("way", ["fan", "chain"])
def test_one_message_comes_to_so_many_patterns_whatever_the_exchanges_lead_to(
    way: str, first: str, shape: str
) -> None:
    """Attack: one message to a fanout exchange, bound to many topic exchanges that are full of wildcards."""
    made, names = many()
    before = ["front"] * 60 if way == "fan" else ["front", *names]
    patterns = [binding for name in names for binding in full(name, shape)]
    links = list(map(to_exchange, before, names))
    for some in (patterns, links) if first == "the patterns" else (links, patterns):
        bind_all(made, *some)
    assert searched_at_most(made, "front", "e0", "e30") <= 16_384 + 60


def test_nor_by_alternate_exchanges_in_whatever_order_they_are_declared() -> None:
    made = exchanges()
    made.add_queue("q")
    taken = 0
    for number in reversed(range(0, 60, 2)):  # each leads to one that is not there yet
        made.add(Exchange(f"e{number}", "topic", alternate=f"e{number + 1}"))
        bind_all(made, *full(f"e{number}"))
    for number in range(1, 60, 2):
        made.add(Exchange(f"e{number}", "topic", alternate=f"e{number + 1}"))
        try:
            made.check_walks(f"e{number}")
            taken += 1
        except Refused:
            made.remove(f"e{number}")
    assert taken < 60
    assert searched_at_most(made, *(f"e{number}" for number in range(0, 60, 2))) <= 16_384 + 60


def test_exchanges_without_wildcards_may_lead_to_hundreds_of_others_and_in_circles() -> None:
    made, names = many("fanout", 500)
    assert bind_all(made, *(to_exchange("front", name) for name in names)) == 500
    chain, links = many("direct", 500)
    assert bind_all(chain, *map(to_exchange, links, [*links[1:], "e0"])) == 500
    topics, some = many("topic", 5)
    assert bind_all(topics, *(to_exchange(one, other) for one in some for other in some)) == 25
    made, fronts = many("fanout", 1500)
    assert bind_all(made, *(to_exchange(name, "front") for name in fronts), to_exchange("front", "amq.fanout")) == 1501


def test_an_exchange_has_room_for_some_patterns_whoever_leads_to_it_and_amq_topic_for_all() -> None:
    made = exchanges(greedy="topic", mine="topic")
    made.add_queue("q")
    ordinary = [Binding("mine", queue("q"), f"{'*.' * number}a.#") for number in range(20)]
    bind_all(made, *full("greedy"), to_exchange("greedy", "mine"), to_exchange("greedy", TOPICS))
    bind_all(made, *full("greedy", "long"))
    assert bind_all(made, *ordinary) == 20
    alone = exchanges()
    alone.add_queue("q")
    patterns = [*full(TOPICS), *full(TOPICS, "long")]
    assert bind_all(made, *patterns) == bind_all(alone, *patterns) > 5


def test_what_a_journal_has_beyond_the_limit_stays_and_nothing_is_added() -> None:
    made, names = many()
    for binding in (*full("e0"), *(to_exchange("front", name) for name in names)):
        made.bind(binding)
    assert made.route("front", "a.a.a.a.a.a.a.a.a.a.a.z", {}).queues == ("q",)
    made.check_room(full("e0")[0])
    made.check_room(Binding("e0", queue("q"), "plain.words"))
    pattern = Binding("e0", queue("q"), "*.#.b.#")
    for more in (pattern, to_exchange("front", "amq.match"), to_exchange("e1", "amq.match")):
        with pytest.raises(Refused, match=r"[Uu]nbind some"):
            made.check_room(more)
    for name in names:
        made.remove(name)
    made.check_room(to_exchange("front", "amq.match"))
    assert not made._before


def test_of_a_topic_of_more_words_than_a_key_has_the_rest_is_one_word() -> None:
    patterns = ("a.#", "a.a.*.#", "#.b", "a.b.#", ".".join("a" * 128))
    made = exchanges(*((TOPICS, pattern, pattern) for pattern in patterns))
    assert made.route(TOPICS, ".".join("a" * 127 + "b"), {}).queues == ("#.b", "a.#", "a.a.*.#")
    assert made.route(TOPICS, ".".join("a" * 128 + "b"), {}).queues == ("a.#", "a.a.*.#")


def test_neighbouring_hashes_are_one_and_go_as_they_came() -> None:
    bindings = TopicBindings()
    both = [Binding("t", queue("q"), pattern) for pattern in ("a.#.#.b", "a.#.b")]
    assert all(map(bindings.add, both))
    assert len(list(bindings.match("a.b", {}))) == 2
    assert bindings.remove(both[0])
    assert len(list(bindings.match("a.x.b", {}))) == 1
    assert bindings.remove(both[1])
    assert not bindings._root.next


def test_a_queue_gets_it_once() -> None:
    made = exchanges(("d", "k", "q"), ("d", "k", ">f"), ("f", "", "q"), ("f", "", "r"), d="direct", f="fanout")
    assert made.route("d", "k", {}) == ExchangeRoute(("q", "r"), False)


def test_the_default_exchange_knows_queues_by_name() -> None:
    made = exchanges(("d", "k", "q"), d="direct")
    assert made.route("", "q", {}).queues == ("q",)
    assert made.route("", "k", {}).queues == ()
    made.remove_queue("q")
    assert made.route("", "q", {}).queues == made.route("d", "k", {}).queues == ()


def test_exchanges_in_a_circle() -> None:
    made = exchanges(("a", "", ">b"), ("b", "", ">a"), ("b", "", "q"), a="fanout", b="fanout")
    assert made.route("a", "", {}).queues == made.route("b", "", {}).queues == ("q",)


@pytest.mark.parametrize(
    ("wanted", "headers", "fits"),
    [
        ({"a": 1, "b": 2}, {"a": 1, "b": 2, "c": 3}, True),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        ({"x-match": "any", "a": 1, "b": 2}, {"a": 1}, True),
        ({"x-match": "any", "a": 1}, {"a": 2}, False),
        ({"a": None}, {"a": 5}, True),
        ({"a": None}, {"b": 5}, False),
        ({"x-match": "all", "x-b": 1}, {}, True),
        ({"x-match": "all-with-x", "x-b": 1}, {}, False),
        ({"x-match": "any-with-x", "x-b": 1}, {"x-b": 1}, True),
        ({}, {"a": 1}, True),
        ({"x-match": "any"}, {"a": 1}, False),
    ],
)
def test_headers(wanted: dict[str, object], headers: dict[str, object], fits: bool) -> None:
    made = Exchanges()
    made.add_queue("q")
    made.bind(Binding("amq.headers", queue("q"), "", tuple(sorted(wanted.items()))))
    assert bool(made.route("amq.headers", "k", headers).queues) is fits


def test_what_no_binding_wants_goes_to_the_alternate() -> None:
    made = Exchanges()
    made.add(Exchange("rest", "fanout"))
    made.add(Exchange("d", "direct", alternate="rest"))
    for name, source, key in (("q", "d", "k"), ("r", "rest", "")):
        made.add_queue(name)
        made.bind(Binding(source, queue(name), key))
    assert made.route("d", "k", {}).queues == ("q",)
    assert made.route("d", "other", {}).queues == ("r",)


def test_an_exchange_goes_with_its_last_binding() -> None:
    made = Exchanges()
    made.add(Exchange("temporary", "direct", auto_delete=True))
    made.add_queue("q")
    binding = Binding("temporary", queue("q"), "k")
    assert made.bind(binding)
    assert not made.bind(binding)
    made.remove_queue("q")
    assert "temporary" not in made.by_name
    assert not made.unbind(binding)


def test_a_removed_exchange_leads_nowhere_and_nothing_leads_to_it() -> None:
    made = exchanges(("a", "k", ">b"), ("b", "k", "q"), a="direct", b="direct")
    made.remove("b")
    assert made.route("a", "k", {}).queues == ()
    assert not made.by_name["a"].bindings.all
    assert made.leading_to.get(queue("q"), {}) == {}


def test_routes_are_forgotten_when_bindings_change() -> None:
    made = exchanges(("d", "k", "q"), d="direct")
    assert made.route("d", "k", {}).queues == ("q",)
    made.add_queue("r")
    made.bind(Binding("d", queue("r"), "k"))
    assert made.route("d", "k", {}).queues == ("q", "r")
    made.unbind(Binding("d", queue("q"), "k"))
    assert made.route("d", "k", {}).queues == ("r",)


def test_topics_and_routing_keys_are_each_others() -> None:
    made = exchanges(("d", "a.b", ">" + TOPICS), d="direct")
    assert made.route(TOPICS, "a.b", {}).topics
    assert made.route("d", "a.b", {}).topics
    assert not made.route("d", "other", {}).topics
    for topic in ("a/b", "a.b/c", "/a", "x"):
        assert topic_of(routing_key_of(topic)) == topic
    assert routing_key_of("a/b.c") == "a.b/c"


def headers_router() -> Router:
    """A queue bound by what kind of thing it wants, and one bound to an exchange that looks at no headers."""
    router = Router(Pool("p", 1, 0))
    feeds = []
    for name, source, arguments in (("shapes", "amq.headers", (("shape", "round"), ("x-match", "all"))),
                                    ("keys", "amq.direct", ())):  # fmt: skip
        feed = Feed(FeedKey(name, None, Plain(), Pool("p", 1, 0), 0, None), Lane(Plain(), Pool("p", 1, 0)),
                    lambda _: True, by_exchange=True)  # fmt: skip
        feeds.append(feed)
        router.queues[name] = type("Queue", (), {"feed": feed})()  # type: ignore[assignment]
        router.exchanges.add_queue(name)
        router.exchanges.bind(Binding(source, Destination("queue", name), "k", arguments))
    return router


@pytest.mark.parametrize("exchange", ["amq.headers", "amq.direct", "amq.topic"])
def test_headers_nobody_looks_at_do_not_keep_routes_from_being_remembered(
    exchange: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    router, worked_out = headers_router(), []
    work_out = router._work_out
    monkeypatch.setattr(router, "_work_out", lambda *asked: worked_out.append(asked) or work_out(*asked))
    for number in range(1000):
        route = router.route_from(exchange, "k", {"id": number, "shape": "round" if number % 2 else "flat"})
        wanted = {"amq.headers": ["shapes"] if number % 2 else [], "amq.direct": ["keys"], "amq.topic": []}
        assert [feed.key.filter for feed in route.feeds] == wanted[exchange]
    assert len(worked_out) == (2 if exchange == "amq.headers" else 1)


def test_what_differs_each_time_is_remembered_within_bounds_and_found_without_asking_every_binding(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    router, asked = headers_router(), 0
    for number in range(500):
        bound = Binding("amq.headers", Destination("queue", "shapes"), "", (("id", number), ("x-match", "all")))
        router.exchanges.bind(bound)
    monkeypatch.setattr(router_module, "ROUTES_BYTES_MAX", 100_000)
    for number in range(1000):
        route = router.route_from("amq.headers", "k", {"id": number})
        assert len(route.feeds) == (number < 500)
        assert router._cached_bytes <= 100_000
        asked += router.exchanges.visited
    assert asked <= 4 * 1000
    router.route_from("amq.headers", "k", {"id": "x" * 10_000})
    assert not any("x" * 10_000 in str(known) for known in router._by_headers), "nor what is long"


def fits(wanted: dict[str, object], headers: dict[str, object]) -> bool:
    how = str(wanted.pop("x-match"))
    names = [name for name in wanted if how.endswith("-with-x") or not name.startswith("x-")]
    found = (name in headers and wanted[name] in (None, hashable(headers[name])) for name in names)
    return any(found) if how.startswith("any") else all(found)


@pytest.mark.parametrize("how", ["all", "any", "all-with-x", "any-with-x"])
def test_an_index_finds_what_asking_everybody_finds(how: str) -> None:
    values: tuple[object, ...] = (None, 1, "a", [1, {"b": 2}])
    names = ("a", "b", "x-c")
    bindings = HeadersBindings()
    every = []
    for number, chosen in enumerate(product((*values, ...), repeat=3)):
        arguments = {name: hashable(value) for name, value in zip(names, chosen, strict=True) if value is not ...}
        said = tuple(sorted({**arguments, "x-match": how}.items()))
        every.append(Binding("h", Destination("queue", str(number)), "", said))
        bindings.add(every[-1])
    for binding in every[::3]:
        bindings.remove(binding)
    left = [binding for binding in every if binding in bindings.all]
    for chosen in product((*values, ...), repeat=3):
        headers = {name: value for name, value in zip(names, chosen, strict=True) if value is not ...}
        wanted = {b.destination.name for b in left if fits(dict(b.arguments), headers)}
        hashed = {name: hashable(value) for name, value in headers.items()}
        assert {to.name for to in bindings.match("", hashed)} == wanted
    for binding in left:
        bindings.remove(binding)
    assert not any((bindings._by_header, bindings._always, bindings.names, bindings.steps))


def wide(number: int, how: str, names: int = 100) -> Binding:
    """A binding that is found by the header "a" and looks at many others, which fit except for the last."""
    same = {f"b{name:03}": None if name % 2 else 1 for name in range(names - 2)}
    wanted = {"x-match": how, "a": None, **same, "z": number}
    return Binding("amq.headers", Destination("queue", "shapes"), str(number), frozen(wanted))


@pytest.mark.parametrize("how", ["all", "any"])
def test_a_message_is_held_against_bindings_and_not_against_each_of_their_headers(how: str) -> None:
    router, lines = headers_router(), Lines()
    exchange = router.exchanges.by_name["amq.headers"].bindings
    for number in range(300):
        exchange.check_room(wide(number, how))
        router.exchanges.bind(wide(number, how))
    headers = {"a": "fresh", "z": "other", **{f"b{name:03}": 1 for name in range(98)}}
    with lines.counted():
        route = router.route_from("amq.headers", "k", headers)
    assert len(route.feeds) == (how == "any")
    assert lines.count < 300 * 20
    if how == "any":
        assert exchange.visited >= 300 * 99, "which is counted"


@pytest.mark.parametrize(("wanted", "taken"), [
    (dict.fromkeys("abc"), 4), ({"x-match": "any", **dict.fromkeys("abc", 1)}, 4), ({"a": [1, {"b": 2}]}, 2),
])  # fmt: skip
def test_headers_that_bindings_look_at_have_a_limit(
    monkeypatch: pytest.MonkeyPatch, wanted: dict[str, object], taken: int
) -> None:
    monkeypatch.setattr(bindings_module, "STEPS_MAX", 4)
    bindings, same = HeadersBindings(), frozen(wanted)
    for number in range(taken):
        binding = Binding("h", queue(str(number)), "", same)
        bindings.check_room(binding)
        bindings.add(binding)
    with pytest.raises(Refused, match="look at too many headers"):
        bindings.check_room(Binding("h", queue("one more"), "", same))
    bindings.check_room(Binding("h", queue("one more"), "", frozen({"one": 1})))
    with pytest.raises(Refused, match="128 headers"):
        bindings.check_room(wide(1, "all", 129))


def test_to_know_which_headers_matter_nobody_goes_through_all_bindings() -> None:
    """A binding changes before each message: what is remembered of routes is forgotten."""
    router, lines = headers_router(), Lines()
    for number in range(1000):
        router.exchanges.bind(wide(number, "all", 20))
        router.exchanges.bind(Binding("amq.direct", Destination("queue", "keys"), str(number)))
    router.exchanges.bind(Binding("amq.direct", Destination("exchange", "amq.headers"), "to headers"))
    for number in range(20):
        one = Binding("amq.headers", Destination("queue", "shapes"), "", (("mine", number),))
        for change in (router.exchanges.bind, router.exchanges.unbind):
            change(one)
            router.forget()
            with lines.counted():
                route = router.route_from("amq.direct", "to headers", {"mine": number, "other": 1})
            assert len(route.feeds) == (change == router.exchanges.bind)
            assert lines.count < 300


@pytest.mark.parametrize("by", ["queue", "binding", "exchange"])
def test_a_long_chain_of_exchanges_goes_with_its_last_binding(by: str) -> None:
    """Each is bound to the next, and deleted with it. There may be more than Python's stack has room for."""
    made, count = Exchanges(), 3000
    made.add_queue("q")
    made.add(Exchange("stays", "fanout"))
    bytes_before = made.bytes
    to = queue("q")
    bindings = []
    for number in range(count):
        made.add(Exchange(f"e{number}", "fanout", auto_delete=True, alternate="stays"))
        bindings.append(Binding(f"e{number}", to, ""))
        made.bind(bindings[-1])
        to = Destination("exchange", f"e{number}")
    if by == "queue":
        made.remove_queue("q")
    elif by == "binding":
        assert made.unbind(bindings[0])
    else:
        made.remove("e0")
    assert set(made.by_name) == {*Exchanges().by_name, "stays"}
    assert made.bytes == bytes_before
    assert not made.leading_to
    assert not made._before
