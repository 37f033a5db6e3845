"""Results: the document's form, what the tables make of it, and what the command line says to mistakes."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from bench.__main__ import main
from bench.driver.subscribers import percentiles
from bench.errors import BenchError
from bench.peers.every import EVERY as PEERS
from bench.results import check, load, save
from bench.tables import markdown, tables
from bench.workloads.every import EVERY as WORKLOADS

RATES = {"limit": [40e6, 44e6, 42e6], "headway": [30e6, 28e6, 50e6], "nats": [5e6, 6e6, 4e6], "redis": [2e6, 2e6, 2e6]}


def document(**changes: Any) -> dict[str, Any]:
    runs = [
        {
            "workload": "isolation", "case": f"{stuck} stuck", "values": {"healthy": 50, "stuck": stuck}, "peer": peer,
            "round": number,
            "figures": {
                "deliveries_per_s": rate / (1 + stuck / 100), "lost": stuck, "peak_bytes": 1e8 * (1 + stuck),
                "dealt_s": None, "dealt": "never",
            },
        }
        for stuck in (0, 100)
        for peer, rates in RATES.items()
        for number, rate in enumerate(rates, 1)
        if not (peer == "limit" and stuck)
    ]  # fmt: skip
    machine = {"cpu": "Z80", "cores": 2, "memory_bytes": 2**34, "kernel": "Linux 6", "python": "3.11", "load": 0.1}
    return {
        "schema": 1, "date": "2026-01-31T12:00:00+00:00", "arguments": [], "rounds": 3, "seconds": 3.0, "tiny": False,
        "machine": machine, "versions": {"headway": "0.1", "nats": "2.9"}, "settings": {},
        "missing": {"redis": PEERS["redis"].install}, "runs": runs,
    } | changes  # fmt: skip


def row(case: str, peer: str) -> dict[str, str]:
    (table,) = tables(document())
    rows = [dict(zip(table.head, line, strict=True)) for line in table.rows]
    return next(row for row in rows if (row["case"], row["broker"]) == (case, PEERS[peer].title))


def test_ratios_are_of_medians_to_the_best_of_the_others() -> None:
    ours = row("0 stuck", "headway")
    assert ours["deliveries/s"] == "30.0 M (28.0 M … 50.0 M)"
    assert ours["of best peer"] == "6.00", "30 M to NATS's 5 M; neither the limit nor Headway is a peer"
    assert ours["of limit"] == "0.71"
    assert row("0 stuck", "nats")["of best peer"] == "1.00"


def test_headway_over_amqp_is_no_peer_of_headways() -> None:
    given = document()
    ours = [run | {"peer": "headway-amqp"} for run in given["runs"] if run["peer"] == "headway"]
    (table,) = tables(given | {"runs": given["runs"] + ours})
    rows = [dict(zip(table.head, line, strict=True)) for line in table.rows]
    assert [(row["broker"], row["of best peer"]) for row in rows[1:4]] == [
        ("Headway", "6.00"), ("Headway (AMQP)", "6.00"), ("NATS", "1.00"),
    ]  # fmt: skip


def test_who_has_no_part_in_a_workload_is_named_where_that_is_to_be_told() -> None:
    run = {"workload": "workqueue", "case": "4 consumers, at once", "values": {}, "peer": "rabbitmq", "round": 1}
    given = document(runs=[run | {"figures": {"acknowledged_per_s": 60_000.0}}])
    given["versions"]["rabbitmq"] = "3.10"
    told = markdown(given)
    assert "- left out of workqueue, no queue of this kind here: Headway, NATS\n" in told
    assert "| 4 consumers, at once | RabbitMQ | 1.00 | – | 60.0 k |" in told
    assert "left out of" not in markdown(document())


def test_a_case_is_compared_with_the_peers_own_base() -> None:
    stuck = row("100 stuck", "headway")
    assert stuck["of own"] == "0.50"
    assert stuck["of limit"] == "–", "the limit is not measured beside stuck ones"
    assert stuck["how"] == "never"
    assert stuck["stuck dealt with after"] == "–"


def test_the_markdown_names_machine_versions_and_what_is_missing() -> None:
    told = markdown(document())
    assert "2 cores of Z80, 16 GiB" in told
    assert "Headway 0.1, NATS 2.9" in told
    assert "left out: Redis, not installed: apt-get install -y redis-server" in told
    head, line, *rows = [text for text in told.splitlines() if text.startswith("|")]
    assert len({text.count("|") for text in [head, line, *rows]}) == 1


def test_figures_take_the_place_of_the_old_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, path = tmp_path / "page.md", tmp_path / "bench.json"
    page.write_text("before\n<!-- figures -->\nold\n<!-- /figures -->\nafter\n")
    save(document(), path)
    assert main(["tables", str(path), str(page)]) == 0
    once = page.read_text()
    assert main(["tables", str(path), str(page)]) == 0
    assert page.read_text() == once
    assert "old" not in once
    assert "| 0 stuck | Headway |" in once
    assert once.startswith("before\n")
    assert once.endswith("\nafter\n")
    page.write_text("no marks")
    assert main(["tables", str(path), str(page)]) == 2
    assert "has no <!-- figures -->" in capsys.readouterr().err


def test_a_failed_run_is_named_and_does_not_count() -> None:
    given = document()
    run = {key: value for key, value in given["runs"][0].items() if key != "figures"}
    given["runs"].append(run | {"peer": "nats", "round": 4, "error": "nats died: x"})
    (table,) = tables(given)
    assert table.errors == ["0 stuck, nats: nats died: x"]
    assert table.rows[2][2] == "1.00"


def test_a_document_survives_the_disk(tmp_path: Path) -> None:
    save(document(), tmp_path / "bench.json")
    assert load(tmp_path / "bench.json") == document()
    assert [path.name for path in tmp_path.iterdir()] == ["bench.json"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema": 2}, "schema 1"),
        ({"runs": [{"workload": "fanout"}]}, "a run has no case, peer, round, values"),
        ({"runs": [document()["runs"][0] | {"error": "too"}]}, "either figures or an error"),
    ],
)
def test_a_foreign_document_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(BenchError, match=said):
        check(document(**change))


def test_percentiles_are_of_those_that_were_measured() -> None:
    assert percentiles(list(range(1, 1001))) == {"p50_ns": 500, "p99_ns": 990, "p999_ns": 999, "max_ns": 1000}
    assert percentiles([7]) == {"p50_ns": 7, "p99_ns": 7, "p999_ns": 7, "max_ns": 7}
    assert percentiles([]) == {}


def test_the_plots_are_drawings(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "bench.json"
    save(document(), path)
    assert main(["plots", str(path), str(tmp_path / "plots")]) == 0
    (drawn,) = (tmp_path / "plots").iterdir()
    text = "".join(ElementTree.parse(drawn).getroot().itertext())
    assert drawn.name == "isolation.svg"
    assert "NATS" in text
    assert "Z80" in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["nix"],
            "there is no workload 'nix'; there are fanout, isolation, one-stops, latency, in-turn, footprint, catchup, "
            "filters, workqueue, acknowledged, persistent, restart, beside, stall",
        ),
        (["fanout", "--peers", "kafka"], "there is no peer 'kafka'"),
        (["fanout", "--rounds", "0"], "argument --rounds: invalid number value: '0'"),
        (["workqueue", "--peers", "limit,headway"], "none of these peers takes part in workqueue"),
        (["fanout", "--fast"], "unrecognized arguments: --fast"),
        (["fanout", "--peers", "limit", "--json", "/no/such/folder/x.json"], "/no/such/folder is no folder"),
        (["tables", "/no/such/file"], "/no/such/file: No such file or directory"),
        (["tables"], "usage: python -m bench tables FILE.json [PAGE.md]"),
        ([], "the following arguments are required: workloads"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"bench: {said}")
    assert told.count("\n") == 1


def test_a_peer_that_is_missing_is_named_with_what_installs_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(type(PEERS["nats"]), "find", lambda self: None)
    first = WORKLOADS["fanout"].cases(True)[:1]
    monkeypatch.setattr(WORKLOADS["fanout"], "cases", lambda tiny: first)
    path = tmp_path / "bench.json"
    assert main(["fanout", "--tiny", "--peers", "limit,nats", "--json", str(path)]) == 0
    told = capsys.readouterr()
    assert "left out: NATS is not installed: apt-get install -y nats-server" in told.err
    assert "limit (bare sender)" in told.out
    written = json.loads(path.read_text())
    assert written["missing"] == {"nats": "apt-get install -y nats-server"}
    assert {run["peer"] for run in written["runs"]} == {"limit"}


def test_every_peer_shows_its_settings_and_gives_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["peers"]) == 0
    told = capsys.readouterr().out
    for peer in PEERS.values():
        assert f"## {peer.title}" in told
        assert peer.why
    assert '[listeners.amqp]\nurl = "amqp://127.0.0.1:PORT"\n' in PEERS["headway-amqp"].settings()
    assert "-address 127.0.0.1 " in PEERS["rabbitmq"].settings()
    for name in ("headway", "headway-amqp"):
        plain, durable = PEERS[name].settings().split("And for what is durable:")
        assert '[journal]\npath = "FOLDER/journal"' in durable
        assert "[journal]" not in plain
        assert "{" not in durable.replace("{ blocked_time", "")
    assert "{" not in PEERS["redis"].settings()
    for name in ("nats", "redis", "mosquitto", "rabbitmq", "activemq"):
        assert "127.0.0.1" in PEERS[name].settings(), "on the loopback only"
