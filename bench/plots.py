"""Plots as SVG files: fan-out, and isolation with the memory it takes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.machine import machine_line
from bench.peers.every import EVERY as PEERS
from bench.results import Document
from bench.tables import value
from bench.workloads.every import EVERY as WORKLOADS

COLOURS = {
    "limit": "#9aa0a6", "headway": "#c2410c", "headway-amqp": "#fb923c", "headway-stomp": "#f59e0b", "nats": "#2563eb",
    "redis": "#dc2626", "mosquitto": "#7c3aed", "rabbitmq": "#ca8a04", "activemq": "#059669",
}  # fmt: skip


def draw(document: Document, folder: Path) -> list[Path]:
    """Draws the plots that the document has figures for. Raises BenchError without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        raise BenchError("the plots need matplotlib: pip install 'headway[bench]'") from None
    matplotlib.use("svg")
    matplotlib.rcParams |= {"svg.hashsalt": "headway", "svg.fonttype": "none", "font.size": 9}
    folder.mkdir(parents=True, exist_ok=True)
    done = {run["workload"] for run in document["runs"]}
    return [plot(document, folder) for name, plot in (("fanout", _fanout), ("isolation", _isolation)) if name in done]


def _fanout(document: Document, folder: Path) -> Path:
    from matplotlib import pyplot

    cases = {run["case"]: run["values"]["payload_bytes"] for run in document["runs"] if run["workload"] == "fanout"}
    sizes = sorted(size for size, count in Counter(cases.values()).items() if count > 1) or sorted(set(cases.values()))
    figure, axes = pyplot.subplots(1, len(sizes), figsize=(4.4 * len(sizes), 3.6), sharey=True, squeeze=False)
    for axis, size in zip(axes[0], sizes, strict=True):
        axis.set(title=f"payload {size:,} B", xlabel="subscribers", xscale="log", yscale="log")
        _lines(axis, document, "fanout", "subscribers", "deliveries_per_s", {"payload_bytes": size})
    axes[0][0].set_ylabel("deliveries a second")
    return _save(figure, axes[0][-1], document, folder / "fanout.svg")


def _isolation(document: Document, folder: Path) -> Path:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(8.8, 3.6))
    for axis, key, title in zip(
        axes, ("deliveries_per_s", "peak_bytes"), ("healthy deliveries a second", "peak memory, bytes"), strict=True
    ):
        axis.set(title=title, xlabel="stuck subscribers beside the healthy", yscale="log")
        axis.set_xscale("symlog", linthresh=10)
        _lines(axis, document, "isolation", "stuck", key, {})
        axis.set_xlim(left=-1)
    return _save(figure, axes[-1], document, folder / "isolation.svg")


def _lines(axis: Any, document: Document, workload: str, across: str, key: str, only: dict[str, Any]) -> None:
    assert workload in WORKLOADS
    cases = {
        run["case"]: run["values"][across]
        for run in document["runs"]
        if run["workload"] == workload and only.items() <= run["values"].items()
    }
    for name, peer in PEERS.items():
        points = [(at, found) for case, at in cases.items() if (found := value(document, workload, case, name, key))]
        if points:
            style = {"color": COLOURS[name], "linewidth": 2.4 if peer.is_ours else 1.2, "marker": "o", "markersize": 3}
            if peer.is_limit:
                style |= {"linestyle": "--"}
            axis.plot(*zip(*sorted(points), strict=True), label=peer.title, **style)
    axis.set_xticks(sorted(set(cases.values())), [f"{at:,}" for at in sorted(set(cases.values()))])
    axis.minorticks_off()
    axis.grid(alpha=0.25)


def _save(figure: Any, last: Any, document: Document, path: Path) -> Path:
    from matplotlib import pyplot

    last.legend(loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False)
    figure.text(0.01, 0.005, machine_line(document["machine"]), fontsize=7, color="#5f6368")
    figure.tight_layout(rect=(0, 0.03, 1, 1))
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    pyplot.close(figure)
    return path
