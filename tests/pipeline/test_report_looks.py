"""Reports in a real browser, as wide as a phone and a desk: nothing is wider than the page, and no labels collide."""

from __future__ import annotations

import datetime as dt
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.pages import ABOUT, AT, candidate, table
from tests.pipeline.test_report import health_tables

from headway.pipeline.report.health import health_report
from headway.pipeline.report.lab import lab_report

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-headless-shell", "google-chrome"))), None)
MEASURE = """<script>
function boxes(plot, what) { return [...plot.querySelectorAll(what)].filter((one) => one.textContent.trim())
  .map((one) => { const box = one.getBoundingClientRect();
                  return [box.left, box.top, box.right, box.bottom, one.textContent]; }); }
const plain = document.createElement("pre"); plain.id = "measured";
plain.textContent = JSON.stringify({ page: document.documentElement.scrollWidth, window: window.innerWidth,
  plots: [...document.querySelectorAll(".plot")].map((plot) => ({
    drawn: plot.querySelectorAll(".main-svg").length,
    "ticks below": boxes(plot, ".xtick text"), "ticks beside": boxes(plot, ".ytick text"),
    labels: boxes(plot, ".textpoint text") })) });
document.body.append(plain);
</script></body>"""
NAMES = ["market-data-display-london-desk-7", "market-data-display-london-desk-8", "a", "blotter/of/the/night/shift/12"]


def health(folder: Path) -> Path:
    return health_report(health_tables(NAMES), {"consumers": 40, "lake": "lake"}, folder / "health.html")


def lab(folder: Path) -> Path:
    rows = [
        candidate("as it ran", "ran", hit=12, memory_peak_bytes=130_000_000, noticed=12),
        candidate("nothing", "nothing", memory_peak_bytes=900_000_000, missed=12),
        candidate("a preset with a rather long name", "preset", hit=12, unknown=3, memory_peak_bytes=131_000_000),
        candidate("another preset, just as long", "preset", hit=11, memory_peak_bytes=140_000_000),
        *(candidate(f"tuned: blocked_time={n}s, lag_records={n}000, lag_age={n}s", hit=n, pareto=True, noticed=n,
                    memory_peak_bytes=200_000_000 - n * 10_000_000, recommended=n == 3) for n in range(1, 9)),
    ]  # fmt: skip
    outcomes = [{"candidate": rows[0]["candidate"], "client": name, "filter": "flights/+/US/#"} for name in NAMES]
    curve = [{"candidate": rows[0]["candidate"], "time": AT + dt.timedelta(seconds=s), "memory_bytes": s * 1000}
             for s in range(90)]  # fmt: skip
    tables = table("candidates", *rows), table("outcomes", *outcomes), table("curve", *curve)
    goal = {"memory_bytes": 64_000_000, "disk_bytes": 0}
    return lab_report(*tables, ABOUT | {"goal": goal}, folder / "lab.html")


def seen(page: Path, width: int) -> dict[str, Any]:
    """Opens the page in a window of this width. Returns what stands where."""
    page.write_text(page.read_text(encoding="utf-8").replace("</body>", MEASURE), encoding="utf-8")
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=10000",
               f"--window-size={width},900", "--dump-dom", page.as_uri()]  # fmt: skip
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    measured = re.search(r'<pre id="measured">(.*?)</pre>', ran.stdout, re.DOTALL)
    assert measured, ran.stderr[-2000:]
    found: dict[str, Any] = json.loads(measured[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    return found


def colliding(boxes: list[list[Any]]) -> list[tuple[str, str]]:
    return [
        (one[4], other[4]) for at, one in enumerate(boxes) for other in boxes[at + 1 :]
        if min(one[2], other[2]) - max(one[0], other[0]) > 1 and min(one[3], other[3]) - max(one[1], other[1]) > 1
    ]  # fmt: skip


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: make browser")
@pytest.mark.parametrize("width", [400, 1000])
@pytest.mark.parametrize("make", [health, lab])
def test_it_fits_and_labels_do_not_collide(make: Any, width: int, tmp_path: Path) -> None:
    found = seen(make(tmp_path), width)
    assert found["window"] == width
    assert found["page"] <= width
    for number, plot in enumerate(found["plots"]):
        assert plot.pop("drawn"), f"plot {number} is not drawn"
        for what, boxes in plot.items():
            assert not colliding(boxes), f"plot {number}: {what}"
