"""The table of options: what is one, what is a slip of one, and what is the client's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headway.core.base import Refused
from headway.core.consumer import NO_OPTIONS, OPTIONS, Use, parse_options, read_options
from headway.core.consumer import request as option_table
from headway.core.consumer.request import PAIRS_MAX


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("conflat", "conflate"), ("Conflate", "conflate"), ("conflate_ms", "conflate"), ("snapshots", "snapshot"),
        ("selectro", "selector"), ("form", "from"), ("patiense", "patience"), ("x-headway-leese", "lease"),
        ("headway-offset", "offsets"), ("KEY", "key"), ("polcy", "policy"),
    ],
)  # fmt: skip
def test_a_slip_of_an_option_is_refused_with_what_was_meant(said: str, meant: str) -> None:
    with pytest.raises(Refused, match=rf"^there is no {said}; did you mean (x-headway-)?{meant}\?; there is: "):
        parse_options([(said, "1")])


@pytest.mark.parametrize("said", ["desk", "client", "trace-id", "kez", "version", "", "x-priority", "café", "a" * 5000])
def test_names_of_the_client_are_its_own(said: str) -> None:
    assert parse_options([(said, "1")]) == NO_OPTIONS


def test_with_the_prefix_it_is_an_option_or_refused() -> None:
    assert parse_options([("x-headway-conflate", "2s")]).conflate_s == 2
    with pytest.raises(Refused, match=r"^there is no x-headway-desk; there is: x-headway-conflate, "):
        parse_options([("x-headway-desk", "7")])


def test_a_query_ignores_no_name() -> None:
    assert read_options([("where", "a > 1"), ("top", "20")], Use.QUERY, strict=True) == {"selector": "a > 1", "top": 20}
    with pytest.raises(Refused, match=r"^there is no desk; there is: selector, where, order_by, top, skip"):
        read_options([("desk", "7")], Use.QUERY, strict=True)
    with pytest.raises(Refused, match=r"did you mean order_by\?"):
        read_options([("orderby", "/x")], Use.QUERY, strict=True)


@pytest.mark.parametrize("name", [name for name, option in OPTIONS.items() if Use.QUEUE not in option.uses])
def test_a_queue_refuses_what_it_cannot_do_and_says_why(name: str) -> None:
    with pytest.raises(Refused, match=f"^option {name} is for .*, not for consumers of queues") as caught:
        parse_options([(f"x-headway-{name}", "1")], Use.QUEUE)
    assert OPTIONS[name].instead in str(caught.value)


def test_a_subscription_refuses_what_only_queries_have() -> None:
    with pytest.raises(Refused, match="option at is for queries of the state, not for subscriptions to topics"):
        parse_options([("at", "20")])


@pytest.mark.parametrize("value", ["-1", "1.5", "", "9" * 5000, "²", "x" * 5000])
def test_a_bad_value_is_one_short_line(value: str) -> None:
    with pytest.raises(Refused, match=r"option top=.*takes a number from 0 on") as caught:
        read_options([("top", value)], Use.QUERY)
    assert len(str(caught.value)) < 200


def test_more_names_than_allowed_are_refused_before_any_is_looked_at() -> None:
    taken = 0

    def pairs() -> Iterator[tuple[str, str]]:
        nonlocal taken
        for number in range(60_000):
            taken += 1
            yield f"selectro{number}", ""

    with pytest.raises(Refused, match=r"^more than 100 options and names of the client's own; send fewer$"):
        parse_options(pairs())
    assert taken == PAIRS_MAX + 1
    own = [(f"own-{number}", "") for number in range(PAIRS_MAX)]
    assert parse_options(own) == NO_OPTIONS


@pytest.mark.parametrize("said", ["desk", "x" * 60_000, "sclectox"])
def test_slips_are_counted_only_for_options_with_nearly_the_same_letters(
    said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[str] = []

    def slips(one: str, other: str) -> int:
        compared.append(other)
        return 3

    monkeypatch.setattr(option_table, "_slips", slips)
    assert parse_options([(said, "")]) == NO_OPTIONS
    assert len(compared) <= len(OPTIONS) // 3


@pytest.mark.parametrize("name", ["conflate", "from", "lease"])
def test_a_long_value_is_refused_before_it_is_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(text: str) -> object:
        raise AssertionError("it was read")

    monkeypatch.setitem(OPTIONS, name, OPTIONS[name]._replace(read=read))  # type: ignore[arg-type]
    with pytest.raises(Refused, match=f"option {name}=.*takes"):
        parse_options([(name, "1h" * 30_000)])
