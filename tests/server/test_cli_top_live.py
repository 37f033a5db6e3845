"""headway top on a terminal of 80 x 24 and of 140 x 50, as a person uses it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from tests.server.canned import BROKER, CONSUMER, PUBLISHER, VERDICT, WELL, Canned
from tests.server.pty_screen import PtyScreen

Start = Callable[..., PtyScreen]
UP, DOWN, END = "\x1b[A", "\x1b[B", "\x1b[F"
NAMES = [f"display/{number:02}" for number in range(60)]


def crowd() -> list[dict[str, object]]:
    """Sixty consumers; one that is away has the most lag, and the higher the number the older what waits."""
    rows: list[dict[str, object]] = [
        {**WELL, "client": name, "lag_records": 1000 - at, "lag_age_ms": at * 1000} for at, name in enumerate(NAMES)
    ]
    away = {**WELL, "client": "gone-away", "state": "away", "connected": False, "lag_records": 9_999_999}
    return [away, *rows]


@pytest.fixture
def screen(broker: Canned) -> Iterator[Start]:
    started: list[PtyScreen] = []

    def start(columns: int, lines: int, *more: str) -> PtyScreen:
        found = PtyScreen(["top", "--admin", broker.url, "--interval", "0.1", *more], columns, lines)
        started.append(found)
        return found

    broker.answers["/v1/consumers"] = {"consumers": crowd()}
    broker.answers["/v1/why/display%2F00"] = {
        "client": "display/00", "connected": True, "readmitted_in_s": 0, "verdicts": [VERDICT] * 3,
    }  # fmt: skip
    yield start
    for one in started:
        one.close()


def names(text: str) -> list[str]:
    """The consumers of the list, from above."""
    return re.findall(r"^(display/\d\d|gone-away)\b", text, re.MULTILINE)


@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (140, 50)])
def test_the_list(screen: Start, columns: int, lines: int) -> None:
    top = screen(columns, lines)
    text = top.shows("display/00", "headway 9.9.9", "more with less lag", "quit")
    shown = names(text)
    assert shown == NAMES[: len(shown)]  # by lag, and the one that is away is not above
    assert len(shown) >= lines - 13
    assert text.splitlines()[-1].strip().startswith("q")
    assert all((word in text) == (columns > 110) for word in ("OFFERED", "BLOCKED", "NO CREDIT"))
    assert "LAG▼" in text

    top.press("A")
    assert names(top.shows("AGE▼", NAMES[-1]))[0] == NAMES[-1]
    top.press("r")
    assert names(top.shows("AGE▲"))[0] == NAMES[0]
    top.press(END)
    top.shows("gone-away", "above")
    top.press("\x1b[HL>")
    top.shows("AGE▼")
    top.press("<")
    top.shows("LAG▼")

    top.press("/isplay/1")
    shown = names(top.shows("filter: isplay/1", "10 of 61 consumers match"))
    assert shown == NAMES[10:20]
    top.press("7")
    assert names(top.shows("1 of 61 consumers match isplay/17")) == ["display/17"]
    top.press("\r")
    top.until(lambda text: "filter:" not in text and "match isplay/17" in text, "the filter stays")
    top.press("\x1b")
    top.shows("more with less lag", "display/00")

    top.press("q")
    assert top.ended() == 0


def test_details_help_and_pause(screen: Start, broker: Canned) -> None:
    top = screen(80, 24)
    top.shows("display/00", "quit")
    top.press("\x1b[H\r")
    text = top.shows("display/00  ok", "oldest waiting", "publishers held", "is connected", "its socket has taken")
    assert "CONSUMER" not in text
    top.press(DOWN * 40)
    top.until(lambda text: "oldest waiting" not in text and "lag_bytes" in text, "the details are scrolled")
    top.press("\x1b")
    top.shows("CONSUMER", "LAG▼")
    top.press("?")
    top.shows("keys and columns", "filter as you type", "reverse the order")
    top.press("q")  # back, and not out
    top.shows("CONSUMER")
    top.press("p")
    top.shows("PAUSED")
    broker.answers["/v1/consumers"] = {"consumers": [{**CONSUMER, "client": "newcomer"}]}
    top.press(DOWN + "p")
    top.until(lambda text: "newcomer" in text and "PAUSED" not in text, "it goes on")
    top.press("\x03")
    assert top.ended() in (0, 130)


def test_a_broker_that_goes_away_is_said_in_place_and_comes_back(screen: Start, broker: Canned) -> None:
    top = screen(140, 50)
    top.shows("display/00", "0/s (0 B/s)")
    broker.answers["/v1/broker"] = b"gone"
    top.shows("is not headway's admin API", "display/00")
    broker.answers["/v1/broker"] = {**BROKER, "version": "9.9.10"}
    top.until(lambda text: "9.9.10" in text and "is not headway" not in text, "it recovers")
    broker.answers["/v1/consumers"] = {"consumers": []}
    broker.answers["/v1/publishers"] = {"publishers": [PUBLISHER] * 9}
    top.shows("none", "and 4 more publishers")
    top.press("\r" + UP + "q")
    assert top.ended() == 0


def test_a_broker_that_is_not_there_at_first(broker: Canned) -> None:
    broker.answers["/v1/broker"] = b"nobody"
    top = PtyScreen(["top", "--admin", broker.url], 80, 24)
    try:
        assert top.ended() == 2
        assert "is not headway's admin API" in top.text
    finally:
        top.close()
