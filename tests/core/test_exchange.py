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
    PLACES_MAX,
    WORDS_MAX,
    Binding,
    Destination,
    HeadersBindings,
    TopicBindings,
    frozen,
    hashable,
)
from headway.core.routing.matching.exchange import Exchange, ExchangeRoute, Exchanges
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


@pytest.mark.parametrize(("pattern", "all_fit"), [
    (widest, False),
    (lambda number: f"#.{'a.' * 100}{number}", True),
    (lambda number: f"{number:010b}.z".replace("0", "a.").replace("1", "*."), True),
    (lambda number: f"{number:010b}.z".replace("0", "a.").replace("1", "#."), False),
    (lambda number: f"#.x{number}.#", True),
], ids=["many hashes", "one hash", "stars", "hashes anywhere", "any word"])  # fmt: skip
def test_search_is_bounded_by_the_patterns_that_an_exchange_takes(
    pattern: Callable[[int], str], all_fit: bool
) -> None:
    bindings, taken = TopicBindings(), 0
    with suppress(Refused):
        for number in range(1000):
            binding = Binding("t", queue("q"), pattern(number))
            bindings.check_room(binding)
            bindings.add(binding)
            taken += 1
    assert (taken == 1000) == all_fit
    for key in ("a." * 126 + "b", ".".join(f"x{number}" for number in range(128))):
        list(bindings.match(key, {}))
        assert bindings.visited <= (PLACES_MAX + 2) * (WORDS_MAX + 1)
    bindings.check_room(Binding("t", queue("q"), "plain.words"))
    for binding in list(bindings.all):
        bindings.remove(binding)
    assert bindings.places == 0


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
        assert {to.name for to in bindings.match("", headers)} == wanted
    for binding in left:
        bindings.remove(binding)
    assert not any((bindings._by_header, bindings._always, bindings.names, bindings.further))


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
    (dict.fromkeys("abc"), 4), ({"x-match": "any", **dict.fromkeys("abc", 1)}, 4), ({"a": [1, {"b": 2}]}, 1),
])  # fmt: skip
def test_headers_that_bindings_look_at_have_a_limit(
    monkeypatch: pytest.MonkeyPatch, wanted: dict[str, object], taken: int
) -> None:
    monkeypatch.setattr(bindings_module, "FURTHER_HEADERS_MAX", 8)
    bindings, same = HeadersBindings(), frozen(wanted)
    for number in range(taken):
        binding = Binding("h", queue(str(number)), "", same)
        bindings.check_room(binding)
        bindings.add(binding)
    with pytest.raises(Refused, match="look at 8 headers at most"):
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
