"""headway top and headway why, against a broker with canned answers."""

from __future__ import annotations

import json
import re

import pytest
from tests.server.canned import ANSWERS, BROKER, CONSUMER, PUBLISHER, QUEUE, VERDICT, WELL, Canned, Ran

from headway.cli.top import names

# -- top ---------------------------------------------------------------------------------------------------------------


def test_top_once(broker: Canned) -> None:
    ran = Ran("top", "--once", "--admin", broker.url)
    assert (ran.code, ran.err) == (0, "")
    assert "headway 9.9.9" in ran.out
    assert "up 1 h 2 min" in ran.out
    assert "in 1,000 (128 kB)" in ran.out
    assert "pool global: memory ████████ 95 B of 100 B, peak 99 B" in ran.out
    (slow,) = [line for line in ran.out.splitlines() if line.startswith("display/7")]
    columns = re.split(r"\s{2,}", slow)
    assert columns[:8] == ["display/7", "flights/#", "slow", "12,408", "31.2 s", "35.4 s", "1.5 MB", "·"]
    assert columns[8:14] == ["51 kB/s", "31.2 s", "·", "20", "42", "1.5 s"]
    assert columns[14].strip() == "50 d 12 h ago: disconnect, blocked (over-subscription)"
    assert ran.out.index("display/7") < ran.out.index("healthy")
    (feed,) = [line for line in ran.out.splitlines() if line.startswith("feed")]
    waits = "not read now: memory is used up"
    assert re.split(r"\s{2,}", feed.strip()) == ["feed", "1,000", "128 kB", "2.5 s", "42", waits]


def test_top_on_a_narrow_terminal_keeps_what_matters(broker: Canned) -> None:
    lines = Ran("top", "--once", "--admin", broker.url, width=80).out.splitlines()
    assert all(len(line) <= 80 for line in lines)
    (slow,) = [line for line in lines if line.startswith("display/7")]
    assert "12,408" in slow
    assert "slow" in slow
    assert "BLOCKED" not in "\n".join(lines)


def test_top_names_the_worst_and_counts_the_rest(broker: Canned) -> None:
    broker.answers["/v1/consumers"] = {"consumers": [CONSUMER, *({**WELL, "client": f"c{n}"} for n in range(199))]}
    out = Ran("top", "--once", "--admin", broker.url).out
    assert "and 150 more with less lag" in out
    assert "display/7" in out


@pytest.mark.parametrize(("lags_s", "shown"), [
    ([], None), ([0.0], "1 console"), ([0.4, 0.0], "2 consoles"),
    ([0.0, 31.2, 3.0], "3 consoles, the slowest 31.2 s behind"),
])  # fmt: skip
def test_top_counts_who_looks_at_the_board(broker: Canned, lags_s: list[float], shown: str | None) -> None:
    consoles = [{"name": "ann", "frames": 1, "skipped": 0, "lag_s": lag_s} for lag_s in lags_s]
    broker.answers["/v1/broker"] = {**BROKER, "console": {"consoles": consoles}}
    out = Ran("top", "--once", "--admin", broker.url).out
    found = re.search(r"\d+ consoles?(, the slowest .* behind)?", out)
    assert (found and found[0]) == shown


def test_top_as_json(broker: Canned) -> None:
    ran = Ran("top", "--json", "--admin", broker.url)
    assert json.loads(ran.out) == {
        "broker": BROKER, "consumers": [CONSUMER, WELL], "publishers": [PUBLISHER], "queues": [QUEUE],
    }  # fmt: skip


def test_top_shows_queues_where_something_waits(broker: Canned) -> None:
    broker.answers["/v1/queues"] = {"queues": [QUEUE, {"name": "idle", "records": 0, "unacknowledged": 0}]}
    out = Ran("top", "--once", "--admin", broker.url).out
    assert "orders" in out
    assert "and 1 more queues" in out


def test_top_sorts_and_filters_once(broker: Canned) -> None:
    broker.answers["/v1/consumers"] = {"consumers": [
        {**CONSUMER, "client": "gone", "state": "away", "lag_records": 10**9},
        CONSUMER, {**WELL, "client": "a", "lag_age_ms": 99_000},
    ]}  # fmt: skip
    order = [("--sort", "lag"), ("--sort", "age"), ("--sort", "consumer", "--reverse"), ("--filter", "FLIGHTS")]
    firsts = []
    for options in order:
        lines = Ran("top", "--once", *options, "--admin", broker.url).out.splitlines()
        at = next(at for at, line in enumerate(lines) if line.startswith("CONSUMER"))
        firsts.append([line.split()[0] for line in lines[at + 1 : at + 4]])
    assert firsts == [["display/7", "a", "gone"], ["a", "display/7", "gone"], ["display/7", "a", "gone"],
                      ["display/7", "a", "gone"]]  # fmt: skip
    ran = Ran("top", "--once", "--sort", "lagg", "--admin", broker.url)
    assert (ran.code, "did you mean lag?" in ran.err) == (2, True)


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("q", ["q"]), ("\x1b[A\x1b[Bx", ["up", "down", "x"]), ("\x1b", ["esc"]), ("\x1b[5~\x1b[6~", ["pgup", "pgdn"]),
        ("\x1b[1;5Ca", ["a"]), ("\x1bOP\x7f\r", ["f1", "backspace", "enter"]), ("\x1b[", []), ("é", ["é"]),
    ],
)  # fmt: skip
def test_keys_have_names(text: str, keys: list[str]) -> None:
    assert names(text) == keys


# -- why ---------------------------------------------------------------------------------------------------------------


def test_why(broker: Canned) -> None:
    ran = Ran("why", "display/7", "--admin", broker.url)
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[0] == "display/7 is not connected; it was cut off too often and is readmitted in 12 s"
    assert lines[2].endswith("(50 d 12 h ago)  disconnect  flights/#")
    assert lines[3] == f"  {VERDICT['text']}"
    assert lines[4] == "  reason blocked · cause over_subscription · policy 'market data', rule 2"
    assert [re.sub(r"\s+", " ", line) for line in lines[5:7]] == [
        " blocked_time 31.2 s > 30 s",
        " lag_bytes 5 MB > 64 MB (did not hold)",
    ]
    assert ran.out.count("disconnect  flights/#") == 2
    assert "and 1 older" in Ran("why", "display/7", "-n", "1", "--admin", broker.url).out


def test_why_of_dry_runs_and_of_what_is_over(broker: Canned) -> None:
    discard = {"kind": "discard", "which": "lowest_priority"}
    verdicts = [
        {**VERDICT, "kind": "clear", "cause": None, "policy": ""},
        {**VERDICT, "enforced": False, "action": discard},
    ]
    broker.answers["/v1/why/x"] = {"client": "x\x1b]0;", "connected": True, "readmitted_in_s": 0, "verdicts": verdicts}
    out = Ran("why", "x", "--admin", broker.url).out
    assert "\x1b" not in out
    assert out.startswith("x\ufffd]0; is connected\n")
    assert "disconnect: over" in out
    assert "decided by the broker itself" in out
    assert "discard lowest priority (dry run)" in out


def test_why_of_a_client_without_trouble(broker: Canned) -> None:
    ran = Ran("why", "healthy", "--admin", broker.url)
    assert (ran.code, ran.out) == (0, "healthy is connected; nothing was ever decided about it\n")


def test_why_as_json(broker: Canned) -> None:
    ran = Ran("why", "display/7", "--json", "--admin", broker.url)
    assert json.loads(ran.out) == ANSWERS["/v1/why/display%2F7"]


def test_why_of_nobody_suggests_who_was_meant(broker: Canned) -> None:
    ran = Ran("why", "helthy", "--admin", broker.url)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "headway: nothing is known of a client (did you mean healthy?)\n"
    assert Ran("why", "zzz", "--admin", broker.url).err == "headway: nothing is known of a client\n"
