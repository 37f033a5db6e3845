"""Every workload at a tiny size: that it measures what it says keeps working. Nothing here asserts on a time.

``HEADWAY_BENCH_PEERS=all`` (or names with commas) runs them against the other brokers that are installed too.
"""

from __future__ import annotations

import os
import signal
import socket
from multiprocessing import Pipe
from typing import Any

import pytest
from bench.driver import publisher
from bench.errors import PeerFailed
from bench.peers.every import EVERY as PEERS
from bench.peers.peer import Instance, Peer, start
from bench.rounds import Step, perform, steps
from bench.workloads.every import EVERY as WORKLOADS
from tests.interop.waiting import until

from bench import isolation

TINY_S = 0.2
ASKED = os.environ.get("HEADWAY_BENCH_PEERS", "")
OURS = ["headway", "headway-amqp", "limit"]
NAMES = [*OURS, *([name for name in PEERS if ASKED == "all" or name in ASKED.split(",")] if ASKED else [])]
JMS = [PEERS["headway-openwire"], PEERS["headway-openwire-cached"]]
"""Peers that differ from ours only in how clients speak to them."""
PLAN = steps(list(WORKLOADS.values()), [PEERS[name] for name in dict.fromkeys(NAMES) if PEERS[name].find()], 1, True)
PLAN += steps([WORKLOADS["fanout"], WORKLOADS["workqueue"], WORKLOADS["one-stops"]], JMS, 1, True)


def measured(step: Step) -> dict[str, Any]:
    (run,) = perform([step], TINY_S, lambda _: None)
    assert "error" not in run, run["error"]
    figures: dict[str, Any] = run["figures"]
    return figures


@pytest.mark.usefixtures("copied")
@pytest.mark.parametrize("step", PLAN, ids=lambda step: f"{step.workload.name}-{step.case.name}-{step.peer.name}")
def test_a_tiny_run_measures_something(step: Step) -> None:
    figures = measured(step)
    headline = next(column for column in step.workload.columns if figures.get(column.key) is not None)
    assert figures[headline.key] >= 0
    if step.workload.name in ("fanout", "isolation", "filters", "latency", "beside"):
        subscribers = step.case.values.get("subscribers", step.case.values.get("healthy"))
        assert figures["published"] > 0
        assert figures["deliveries"] + figures["lost"] == figures["published"] * subscribers
    if step.workload.name == "in-turn":
        assert figures["published"] == figures["rounds"] * step.case.values["publishers"] > 0
        assert figures["p99_ns"] >= figures["p50_ns"] > 0
    if step.workload.name == "acknowledged":
        assert figures["deliveries"] + figures["lost"] == figures["published"] * step.case.values["consumers"] > 0
    if step.workload.name in ("workqueue", "persistent"):
        assert figures["published"] > 0
        assert figures["deliveries"] + figures["lost"] == figures["published"]
    if step.workload.name == "one-stops":
        assert figures["before_per_s"] > 0
        assert figures["share"] >= 0, "a busy machine may deliver nothing in so short a time"
    if step.workload.name == "restart":
        assert figures["counted"] == figures["published"] == step.case.values["each"] * step.case.values["topics"]
    if step.case.values.get("rate_per_s") and step.workload.name in ("beside", "stall"):
        assert figures["confirmed"] > 0
    if step.workload.name == "stall":
        assert figures["pings"] > 0
    if step.peer.is_ours or step.peer.is_limit:
        assert figures.get("lost") in (0, None), "none of them loses anything"
        # Whoever reads as fast as all others publish may be cut off on a machine where he does not come to read.
        assert not figures.get("disconnected") or step.workload.name == "one-stops"
    if step.workload.name == "catchup":
        assert figures["keys_current"] == step.case.values["keys"]
    if step.case.name == "conflation":
        assert figures["deliveries"] < step.case.values["updates"], "less than all was read"


def test_publisher_that_is_run_too_late_publishes_something() -> None:
    ours, theirs = Pipe()
    with ours, theirs, socket.create_server(("127.0.0.1", 0)) as server:
        ours.send("go")
        ours.send("end")
        publisher.flood(theirs, PEERS["limit"].wire, server.getsockname()[1], ("t",), 128, 0.0)
        assert ours.recv()[1] == "ready"
        assert ours.recv()[1]["published"] > 0


class Dying(Peer):
    """Answers one client, and is gone."""

    name, title, program, install = "dying", "dying", "python3", "nowhere"
    wire = PEERS["limit"].wire

    def find(self) -> str | None:
        return "python3"

    def command(self, instance: Instance) -> list[str]:
        address = ("127.0.0.1", instance.port)
        script = f"import socket; s = socket.create_server({address}); s.accept(); exit('had enough')"
        return ["python3", "-c", script]


class Stillborn(Dying):
    def command(self, instance: Instance) -> list[str]:
        return ["python3", "-c", "exit('no such option: --fast\\nsee the manual')"]


@pytest.mark.parametrize(
    ("peer", "said"), [(Dying(), "dying died: had enough"), (Stillborn(), "dying did not start: see the manual")]
)
def test_a_peer_that_dies_is_one_line_and_the_others_are_measured(peer: Peer, said: str) -> None:
    fanout = WORKLOADS["fanout"]
    case = fanout.cases(True)[0]
    failed, fine = perform([Step(1, fanout, case, peer), Step(1, fanout, case, PEERS["limit"])], TINY_S, lambda _: None)
    assert failed["error"] == said
    assert "figures" not in failed
    assert fine["figures"]["deliveries"] > 0


def test_a_broker_that_dies_under_the_load_is_not_taken_for_a_slow_one() -> None:
    with start(PEERS["limit"]) as running:
        for pid in running.process.pids:
            os.kill(pid, signal.SIGKILL)
        until(lambda: running.process.ended, what="it has ended")
        with pytest.raises(PeerFailed, match="limit died: without a word"):
            running.check()


def test_headway_alone_can_be_measured_with_its_own_options(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = ["--rounds", "1", "--seconds", str(TINY_S), "--healthy", "2", "--stuck", "1"]
    monkeypatch.setattr("sys.argv", ["bench.isolation", *sizes, "--telemetry", "--disconnect"])
    isolation.main()
    told = capsys.readouterr().out
    assert "2 healthy subscribers" in told
    assert "with/without" in told
