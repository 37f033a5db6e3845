"""The picture of the scores: false verdicts and missed ones by policy, and the time to find the stuck."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.machine import machine_line

OURS, OTHERS, MISSED = "#c2410c", "#dc2626", "#9aa0a6"


def draw(document: dict[str, Any], path: Path) -> None:
    """Writes an SVG file. BenchError: without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        raise BenchError("the picture needs matplotlib: pip install 'headway[bench]'") from None
    matplotlib.use("svg")
    matplotlib.rcParams |= {"svg.hashsalt": "headway", "svg.fonttype": "none", "font.size": 9}
    from matplotlib import pyplot

    scores = list(reversed(document["scores"]))
    names = [one["policy"] for one in scores]
    figure, axes = pyplot.subplots(1, 3, figsize=(10.5, 0.32 * len(scores) + 1.4), sharey=True)
    shares = [
        ("judged though healthy, %", "false", "healthy", OTHERS),
        ("troubled and missed, %", "missed", "troubled", MISSED),
    ]
    for axis, (title, part, whole, colour) in zip(axes, shares, strict=False):
        values = [100 * one[part] / max(1, one[whole]) for one in scores]
        bars = axis.barh(names, values, color=colour)
        axis.bar_label(bars, [f"{one[part]} of {one[whole]}" for one in scores], padding=2, fontsize=7)
        axis.set(title=title, xlim=(0, 130), xticks=(0, 25, 50, 75, 100))
    axis = axes[-1]
    axis.set(title="seconds to find the stuck")
    for at, one in enumerate(scores):
        if one["times_s"]:
            axis.plot(one["times_s"], [at] * len(one["times_s"]), "|", color=OURS, markersize=9, alpha=0.6)
            axis.plot([one["median_s"]], [at], "o", color=OURS, markersize=5)
    axis.grid(axis="x", alpha=0.25)
    axis.set_xlim(left=0)
    figure.text(0.01, 0.005, machine_line(document["machine"]), fontsize=7, color="#5f6368")
    figure.tight_layout(rect=(0, 0.03, 1, 1))
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    pyplot.close(figure)
