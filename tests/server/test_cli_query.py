"""headway query --watch, against a broker with canned answers: what it draws, when it asks again, and how it ends."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from rich.console import Console
from tests.server.canned import Canned

from headway.cli.admin import AdminClient, NoBroker
from headway.cli.state import OTHER_LINES, redraw

PATH = "/v1/state/flights%2F%23?top=20"
CLEAR = "\x1b[?1049l"
"""Leaves the screen that a live table is drawn on."""


def answer(*delays: int, offset: int = 7, **more: Any) -> dict[str, Any]:
    records = [
        {"topic": "flights/x", "key": f"N{number}", "payload": json.dumps({"delay": delay}), "offset": number}
        for number, delay in enumerate(delays)
    ]
    return {"filter": "flights/#", "offset": offset, "keys": 400, "evicted_keys": 0, "records": records} | more


def drawn(
    broker: Canned, *looks: Callable[[], object], took_s: float = 0.0, height: int = 20
) -> tuple[str, list[float]]:
    """Returns everything that was drawn, and the pauses. ``looks`` tells what happens before each look but the first;
    then it is interrupted. Each answer takes ``took_s``."""
    file, pauses, next_look = io.StringIO(), list[float](), iter(looks)
    console = Console(file=file, force_terminal=True, width=100, height=height, color_system=None)
    times = count(0.0, took_s)

    def wait(seconds: float) -> None:
        pauses.append(seconds)
        look = next(next_look, None)
        if look is None:
            raise KeyboardInterrupt
        look()

    with pytest.raises(KeyboardInterrupt):
        redraw(AdminClient(broker.url), "flights/#", {"top": "20"}, console, 1.0, wait, lambda: next(times))
    return file.getvalue(), pauses


def put(broker: Canned, what: object) -> Callable[[], object]:
    return lambda: broker.answers.update({PATH: what})


def test_each_look_replaces_the_table_and_the_screen_is_given_back(broker: Canned) -> None:
    broker.answers[PATH] = answer(4_141_141)
    out, waits = drawn(broker, put(broker, answer(4_242_242, offset=8)))
    assert out.index("4141141") < out.index("as of offset 7") < out.index("4242242") < out.index("as of offset 8")
    assert "4141141" not in out[out.index("4242242") :]
    assert out.count(CLEAR) == 1
    assert out.rindex(CLEAR) > out.index("as of offset 8")
    assert waits == [1.0, 1.0]


def test_a_broker_that_goes_away_leaves_its_last_answer_until_it_is_back(broker: Canned) -> None:
    broker.answers[PATH] = answer(4_141_141)
    out, _ = drawn(broker, put(broker, b"gone"), put(broker, answer(4_343_343, offset=9)))
    gone = out.index("is not headway's admin API")
    assert out.rindex("as of offset 7", 0, gone) > out.rindex("4141141", 0, gone) > out.index("as of offset 7")
    assert "is not headway's admin API" not in out[out.index("4343343", gone) :]


def test_figures_that_the_user_may_not_know_are_left_out(broker: Canned) -> None:
    broker.answers[PATH] = answer(4_141_141)
    assert "1 record of 400 keys, as of offset 7" in drawn(broker)[0]
    broker.answers[PATH] = {key: one for key, one in answer(4_141_141, evicted_keys="some").items() if key != "keys"}
    assert "1 record, as of offset 7; some keys evicted since" in drawn(broker)[0]


def test_a_broker_that_is_not_there_at_first_is_an_error(broker: Canned) -> None:
    broker.answers[PATH] = b"gone"
    with pytest.raises(NoBroker):
        drawn(broker)


def test_it_pauses_for_as_long_as_the_answer_took(broker: Canned) -> None:
    """A query that takes the broker four seconds takes it at most half of its time."""
    broker.answers[PATH] = answer(1)
    _, waits = drawn(broker, put(broker, answer(1)), took_s=4.0)
    assert waits == [4.0, 4.0]


def test_what_the_screen_has_no_room_for_is_counted(broker: Canned) -> None:
    broker.answers[PATH] = answer(*range(100, 130))
    out, _ = drawn(broker, height=12)
    room = 12 - OTHER_LINES
    assert [str(number) in out for number in range(100, 130)] == [number < 100 + room for number in range(100, 130)]
    assert f"30 records of 400 keys, as of offset 7; the screen has room for {room}" in out


def test_what_a_record_says_does_not_reach_the_terminal_as_a_command(broker: Canned) -> None:
    hostile = {"topic": "flights/\x1b[2J", "key": "\x07", "payload": json.dumps({"\x1b]0;x": "[red]\x1b[31m"})}
    broker.answers[PATH] = answer() | {"records": [hostile]}
    out, _ = drawn(broker)
    assert "[red]" in out, "nor as a style"
    assert not [bad for bad in ("\x1b[2J", "\x07", "\x1b]0;x", "\x1b[31m") if bad in out]
