"""The plots: pandas frames in, plotly figures out; nothing else is read or written.

Rules:
- Colours can be told apart by the colour-blind (Okabe and Ito's), and nothing is told by colour alone: there are
  legends, labels or shapes beside it.
- With thousands of things the first ``TOP`` are drawn; the text around a plot says how many others there are.
- Colours of ink and ground are left to the page, which knows whether it is dark.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd
import plotly.graph_objects as go

from headway.pipeline.report import html as hover
from headway.pipeline.report import words

TOP = 20
CHAR_SHARE, LINE_SHARE, MARK_SHARE = 0.0105, 0.06, 0.015
"""A letter's width, a line's height and half of a mark in the trade-off, on a screen of 1,000 pixels, as shares of the
largest values, with some room around them."""
EPISODES_MAX = 3000
"""The most bars of a plot: more make the page slow and tell nothing more."""
BLUE, ORANGE, GREEN, RED, PURPLE, SKY, GREY = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#8A949E",
)  # fmt: skip
CAUSE_COLOURS = {
    "application": RED, "network": BLUE, "over_subscription": ORANGE, "producer_burst": GREEN, "broker": PURPLE,
    "network_or_application": SKY,
}  # fmt: skip
KIND_WORDS = {"ran": "as it ran", "nothing": "no policy at all", "preset": "preset", "grid": "of the candidates file"}
_KIND_LOOKS = {
    "grid": (SKY, "circle"), "preset": (ORANGE, "diamond"), "nothing": (GREY, "x"), "ran": (RED, "square"),
}  # fmt: skip
_BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))


def episodes(frame: pd.DataFrame, clients: Sequence[str]) -> go.Figure:
    """Plots slow episodes on a time line, one row per client, in the given order, coloured by cause."""
    rows = frame[frame["client"].isin(set(clients))].nlargest(EPISODES_MAX, "held_byte_seconds")
    names = _names(clients)
    figure = go.Figure()
    for cause in [*CAUSE_COLOURS, *sorted(set(rows["cause"]) - set(CAUSE_COLOURS))]:
        part = rows[rows["cause"] == cause]
        if part.empty:
            continue
        colour = CAUSE_COLOURS.get(cause, GREY)
        figure.add_trace(go.Bar(
            base=[_plot_time(at) for at in part["start"]],
            x=[(end - start).total_seconds() * 1000 for start, end in zip(part["start"], part["end"], strict=True)],
            y=[names[client] for client in part["client"]], orientation="h", name=words.label(words.cause(cause)),
            marker={"color": colour, "line": {"color": colour, "width": 1.5}},
            hovertemplate="%{customdata}<extra></extra>",
            customdata=[hover.episode(row) for row in part.to_dict("records")],
        ))  # fmt: skip
    figure.update_layout(barmode="overlay", bargap=0.35)
    figure.update_xaxes(type="date", title="time (UTC)")
    return _by_name(figure, list(names.values()))


def offenders(frame: pd.DataFrame) -> go.Figure:
    """Plots each client's share of the bytes held for others' lag, the largest on top."""
    top = frame.groupby("client", sort=False).agg(**_OFFENDER).reset_index()
    top = top.sort_values("share_of_cost", ascending=False, kind="stable").head(TOP)
    names = _names(list(top["client"]))
    figure = go.Figure(go.Bar(
        x=top["share_of_cost"] * 100, y=[names[client] for client in top["client"]], orientation="h",
        marker={"color": BLUE}, text=[words.share(value) for value in top["share_of_cost"]], textposition="outside",
        cliponaxis=False, hovertemplate="%{customdata}<extra></extra>",
        customdata=[hover.offender(row) for row in top.to_dict("records")],
    ))  # fmt: skip
    most = float(top["share_of_cost"].max() or 0) * 100
    figure.update_xaxes(title="share of what was held", ticksuffix=" %", range=[0, max(1.0, most * 1.3)])
    return _by_name(figure, list(names.values()))


def isolation(row: dict[str, Any]) -> go.Figure:
    """Plots delivery times of the whole with slow peers and without, side by side."""
    figure = go.Figure()
    looks = (("without", "without slow peers", BLUE, ""), ("with", "with slow peers", ORANGE, "/"))
    for key, name, colour, pattern in looks:
        values = [row[f"{measure}_{key}_ms"] for measure in ("p50", "p99", "max")]
        figure.add_trace(go.Bar(
            x=["half within", "99 % within", "longest"], y=values, name=name,
            marker={"color": colour, "pattern": {"shape": pattern}}, text=[words.ms(value) for value in values],
            textposition="outside", cliponaxis=False, hovertemplate="%{x} %{text}<extra>" + name + "</extra>",
        ))  # fmt: skip
    figure.update_layout(barmode="group", bargap=0.4, bargroupgap=0.08)
    figure.update_xaxes(title="turns of the broker's loop")
    figure.update_yaxes(title="delivery, ms", rangemode="tozero", automargin=True)
    return _finished(figure, 380)


def costs(frame: pd.DataFrame) -> go.Figure:
    """Plots held bytes by hour, stacked by the clients that cost most; all others are one."""
    total = frame.groupby("client")["held_byte_seconds"].sum().sort_values(ascending=False)
    first = list(total.index[:6])
    scale, unit = _unit(float(frame.groupby("hour")["held_byte_seconds"].sum().max()))
    names = _names(first)
    figure = go.Figure()
    hours = sorted(set(frame["hour"]))
    for client, colour in zip([*first, None], (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, GREY), strict=False):
        part = frame[~frame["client"].isin(first)] if client is None else frame[frame["client"] == client]
        if part.empty:
            continue
        others = len(total) - len(first)
        name = words.many(others, "other") if client is None else names[client]
        by_hour = part.groupby("hour")["held_byte_seconds"].sum().reindex(hours, fill_value=0.0)
        figure.add_trace(go.Bar(
            x=[f"{hour:%m-%d %H:00}" for hour in hours], y=by_hour / scale, name=name, marker={"color": colour},
            text=[words.held(value) for value in by_hour], textposition="none",
            hovertemplate="%{x}: %{text}<extra>" + name + "</extra>",
        ))  # fmt: skip
    figure.update_layout(barmode="stack", bargap=0.3 if len(hours) > 4 else 0.7)
    figure.update_xaxes(title="hour beginning (UTC)", type="category", nticks=24)
    figure.update_yaxes(title=f"held, {unit}·s", rangemode="tozero")
    return _finished(figure, 400)


def forecast(rows: Sequence[dict[str, Any]]) -> go.Figure:
    """Plots how full memory and disk are, and how long until they are full."""
    figure = go.Figure()
    names = [words.label(row["name"]) for row in rows]
    used = [100 * row["used_bytes"] / max(1, row["limit_bytes"]) for row in rows]
    texts = [hover.filling(row).replace(", ", ",<br>", 1) for row in rows]
    figure.add_trace(go.Bar(
        x=used, y=names, orientation="h",
        marker={"color": [RED if u > 90 else ORANGE if u > 75 else BLUE for u in used]},
        text=texts, textposition=["inside" if u > 60 else "outside" for u in used], insidetextanchor="start",
        cliponaxis=False, hovertemplate="%{y}: %{text}<extra></extra>",
    ))  # fmt: skip
    figure.add_vline(x=100, line={"color": GREY, "dash": "dash"})
    figure.update_xaxes(title="used at the end, share of the limit", ticksuffix=" %",
                        range=[0, max(150.0, max(used) * 1.6)], tickvals=[0, 25, 50, 75, 100])  # fmt: skip
    return _by_name(figure, names, row_px=52)


def trade_off(frame: pd.DataFrame) -> go.Figure:
    """Plots candidates by what they hold at most and whom they hit; colour and size are their false positives."""
    figure = go.Figure()
    x = (frame["memory_peak_bytes"] + frame["disk_peak_bytes"]).astype(float)
    scale, unit = _unit(float(x.max()))
    x = x / scale
    wrong = frame["false_positives"].astype(float)
    most = max(1.0, float(wrong.max()))
    front = frame[frame["pareto"]].assign(x=x).sort_values(["x", "hit"])
    front = front[front["hit"] < front["hit"].shift().cummin().fillna(math.inf)]  # of what is drawn here, alone
    if len(front) > 1:
        figure.add_trace(go.Scatter(
            x=front["x"], y=front["hit"], mode="lines", line={"color": GREY, "dash": "dot", "shape": "hv"},
            name="nothing is better in all respects", hoverinfo="skip",
        ))  # fmt: skip
    for kind, (colour, symbol) in _KIND_LOOKS.items():
        part = frame[frame["kind"] == kind]
        if part.empty:
            continue
        figure.add_trace(go.Scatter(
            x=x[part.index], y=part["hit"], mode="markers", name=KIND_WORDS[kind],
            marker={
                "symbol": symbol, "size": 9 + 9 * (wrong[part.index] / most) ** 0.5, "color": wrong[part.index],
                "coloraxis": "coloraxis", "line": {"color": colour, "width": 2},
            },
            hovertemplate="%{customdata}<extra></extra>",
            customdata=[hover.candidate(row) for row in part.to_dict("records")],
        ))  # fmt: skip
    named = frame[(frame["kind"] != "grid") | frame["recommended"]]
    labels = _labels(list(zip(x[named.index], named["hit"], map(_called, named.to_dict("records")), strict=True)),
                     float(x.max()), float(frame["hit"].max()))  # fmt: skip
    figure.add_trace(go.Scatter(
        x=[one[0] for one in labels], y=[one[1] for one in labels], text=[one[2] for one in labels],
        textposition=[one[3] for one in labels], textfont={"size": 12}, hoverinfo="skip", showlegend=False,
        mode="markers+text", marker={"opacity": 0, "size": 24}, cliponaxis=False,
    ))  # fmt: skip
    best = frame[frame["recommended"]].head(1)
    figure.add_trace(go.Scatter(
        x=list(x[best.index]), y=list(best["hit"]), mode="markers", name="recommended", hoverinfo="skip",
        marker={"symbol": "star-open", "size": 30, "color": GREEN, "line": {"width": 2.5}},
    ))  # fmt: skip
    figure.update_layout(coloraxis={
        "showscale": bool(wrong.max()), "colorscale": "Cividis", "cmin": 0, "cmax": most, "reversescale": True,
        "colorbar": {"title": {"text": "hit wrongly", "side": "right"}, "thickness": 12, "len": 0.85, "outlinewidth": 0,
                     "tickformat": ",d" if most >= 5 else None, "nticks": min(6, int(most) + 1)},
    })  # fmt: skip
    high = max(1.0, float(frame["hit"].max()))
    far = max(float(x.max()), 1e-9)
    figure.update_xaxes(title=f"most that is held in memory and on disk, {unit}", range=[-0.06 * far, 1.12 * far],
                        tickvals=_ticks(far))  # fmt: skip
    figure.update_yaxes(title="consumers hit", range=[-0.16 * high, 1.16 * high], tickvals=_ticks(high, least=1.0))
    return _finished(figure, 560)


def curves(frame: pd.DataFrame, names: Sequence[tuple[str, str]], goal_bytes: float) -> go.Figure:
    """Plots memory and disk together over time; ``names``: candidates with their labels, most important first."""
    figure = go.Figure()
    total = frame["memory_bytes"] + frame["disk_bytes"]
    scale, unit = _unit(float(total.max()))
    looks = ((GREEN, "solid"), (RED, "dash"), (GREY, "dot"), (BLUE, "dashdot"))
    for (candidate, name), (colour, dash) in zip(names, looks, strict=False):
        part = frame[frame["candidate"] == candidate].sort_values("time")
        held = part["memory_bytes"] + part["disk_bytes"]
        figure.add_trace(go.Scatter(
            x=[_plot_time(at) for at in part["time"]], y=held / scale, name=words.label(name, 48), mode="lines",
            line={"color": colour, "dash": dash, "width": 2.5}, text=[words.size(value) for value in held],
            hovertemplate="%{text}<extra>" + words.label(name, 48) + "</extra>",
        ))  # fmt: skip
    if 0 < goal_bytes <= 1.5 * float(total.max()):
        goal = {"text": "goal, memory and disk together", "xanchor": "left", "x": 0.01}
        figure.add_hline(y=goal_bytes / scale, line={"color": GREY, "width": 1}, annotation=goal)
    figure.update_layout(hovermode="x unified")
    figure.update_xaxes(title="time (UTC)", type="date")
    figure.update_yaxes(title=f"held, {unit}", rangemode="tozero")
    return _finished(figure, 420)


# -- parts ------------------------------------------------------------------------------------------------------------


def _finished(figure: go.Figure, height: int) -> go.Figure:
    figure.update_layout(
        template="none", height=height, margin={"l": 64, "r": 24, "t": 44, "b": 56},
        font={"family": "system-ui, sans-serif", "size": 13},
        paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)",
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "title": {"text": ""}},
        hoverlabel={"align": "left"}, showlegend=len(figure.data) > 1,
    )  # fmt: skip
    figure.update_xaxes(gridcolor="#dde2e7", zeroline=False, automargin=True)
    figure.update_yaxes(gridcolor="#dde2e7", zeroline=False, automargin=True)
    return figure


def _by_name(figure: go.Figure, names: Sequence[str], row_px: int = 26) -> go.Figure:
    """Gives the figure one row per name, the first on top."""
    figure = _finished(figure, 150 + row_px * max(2, len(names)))
    figure.update_yaxes(
        type="category", categoryorder="array", categoryarray=list(reversed(names)), showgrid=False,
        range=[-0.6, len(names) - 0.4], tickmode="array", tickvals=list(names), ticklabelstandoff=6,
    )  # fmt: skip
    figure.update_layout(margin={"l": 16})
    return figure


def _names(clients: Sequence[str]) -> dict[str, str]:
    """Names clients for a plot: no two of them alike, however they are shortened."""
    return dict(zip(clients, words.apart(clients, 28), strict=True))


def _plot_time(at: Any) -> str:
    """Writes a time as plotly takes it: UTC, to the millisecond, without a zone, which it would turn into the
    reader's."""
    time = pd.Timestamp(at)
    return f"{time.tz_convert('UTC') if time.tzinfo else time:%Y-%m-%d %H:%M:%S.%f}"[:23]


def _unit(most: float) -> tuple[float, str]:
    return next((scale, unit) for scale, unit in _BYTES if most >= scale or scale == 1.0)


def _ticks(most: float, least: float = 0.0) -> list[float]:
    """Makes round numbers from nought on, some six of them, at least ``least`` apart; none below nought."""
    rough = max(most / 6, least)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    return [round(number * step, 12) for number in range(int(most * 1.1 / step) + 1)]


class _Box(NamedTuple):
    """The place of a label, in shares of the largest values."""

    left: float
    low: float
    right: float
    high: float

    def covers(self, other: _Box) -> bool:
        return (min(self.right, other.right) > max(self.left, other.left)
                and min(self.high, other.high) > max(self.low, other.low))  # fmt: skip


def _called(row: dict[str, Any]) -> str:
    """Returns the label of a candidate's mark."""
    if row["recommended"]:
        return f"recommended: {words.shown(row['candidate'])}" if row["kind"] != "grid" else "recommended"
    return words.shown(row["candidate"], 44) if row["kind"] == "preset" else KIND_WORDS[row["kind"]]


def _labels(
    points: Sequence[tuple[float, float, str]], x_max: float, y_max: float
) -> list[tuple[float, float, str, str]]:
    """Returns (x, y, text, side) of labels: marks that lie together share one, a line for each, and each label stands
    on the side of its marks where it covers no other."""
    x_max, y_max = max(x_max, 1e-9), max(y_max, 1.0)
    groups: list[list[tuple[float, float, str]]] = []
    for point in sorted(points):
        group = next((g for g in groups if abs(g[0][0] - point[0]) < 0.2 * x_max
                      and abs(g[0][1] - point[1]) < 0.05 * y_max), None)  # fmt: skip
        if group is None:
            groups.append([point])
        else:
            group.append(point)
    while (found := _placed(groups, x_max, y_max)) is None and len(groups) > 1:
        groups = [groups[0] + groups[1], *groups[2:]]  # in order of x: what has no room joins its neighbour
    return found or []


def _placed(
    groups: Sequence[Sequence[tuple[float, float, str]]], x_max: float, y_max: float
) -> list[tuple[float, float, str, str]] | None:
    """Places a label for each group; None: not all have room."""
    found: list[tuple[float, float, str, str]] = []
    taken: list[_Box] = []
    for group in groups:
        y = max(one[1] for one in group)
        lines = [words.shown(one[2], 60) for one in group]
        wide, high = max(map(len, lines)) * CHAR_SHARE, len(lines) * LINE_SHARE
        left, low = group[0][0] > 0.5 * x_max, y > 0.5 * y_max
        for leftward, below in itertools.product((left, not left), (low, not low)):
            x = min(one[0] for one in group) if leftward else max(one[0] for one in group)
            near, foot = x / x_max + (-MARK_SHARE if leftward else MARK_SHARE), y / y_max
            box = _Box(near - wide if leftward else near, foot - high if below else foot,
                       near if leftward else near + wide, foot if below else foot + high)  # fmt: skip
            if box.left > -0.06 and not any(map(box.covers, taken)):
                break
        else:
            return None
        taken.append(box)
        side = f"{'bottom' if below else 'top'} {'left' if leftward else 'right'}"
        found.append((x, y, "<br>".join(words.label(line, 60) for line in lines), side))
    return found


_OFFENDER = {
    "filters": ("filter", "nunique"), "filter": ("filter", "first"), "share_of_cost": ("share_of_cost", "sum"),
    "episodes": ("episodes", "sum"), "slow_ms": ("slow_ms", "sum"), "held_byte_seconds": ("held_byte_seconds", "sum"),
}  # fmt: skip
"""Sums over a client's filters: in a plot a client is one row."""
