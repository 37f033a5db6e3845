"""The health report: what the recording says of slow consumers, what they cost, and whether the others noticed.

It is made of the five tables of the health pipeline (see docs/LAKE.md for their columns) and of ``about``, the facts
of the recording: ``lake``, ``files``, ``rows``, ``first``, ``last``, ``runs``, ``brokers``, ``consumers``, ``topics``,
``seconds`` (that it took to work out); what else is in it is shown under its own name.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from headway.pipeline.report import plots, words
from headway.pipeline.report.html import Document

NOTICED_RATIO = 1.5
"""The largest ratio at which 99 % of the deliveries with slow peers count as fast as without."""
NOTICED_MS = 2.0
"""The largest difference at which they count as equally fast, whatever the ratio."""
TOO_SHORT_S = 10.0
"""Minimum time with slow peers, and without, for any conclusion."""
SOON_S = 3600.0
_FACTS = {
    "first": "recorded from (UTC)", "last": "to (UTC)", "consumers": "consumers", "topics": "topics",
    "brokers": "brokers", "runs": "runs", "rows": "rows", "files": "files", "lake": "lake", "seconds": "worked out in",
}  # fmt: skip


def health_report(tables: Mapping[str, pa.Table], about: Mapping[str, Any], out: Path) -> Path:
    """Writes the report of a lake's health to ``out`` and returns it. Raises ConfigError where it cannot.

    ``tables``: ``slow_episodes``, ``offenders``, ``costs``, ``isolation`` and ``forecast``; any may be empty.
    """
    frames = {name: table.to_pandas() for name, table in tables.items()}
    episodes = frames["slow_episodes"]
    offenders = frames["offenders"].sort_values(
        ["held_byte_seconds", "slow_ms", "client"], ascending=[False, False, True], kind="stable"
    )
    whole = _whole(frames["isolation"])
    pools = _pools(frames["forecast"])
    answer, tone = _answer(episodes, offenders, whole, pools, about)
    page = Document("health", "Headway: how the consumers are doing", answer, tone)
    page.section("What was recorded")
    page.facts(facts(about, _FACTS))
    _episodes(page, episodes)
    _offenders(page, offenders)
    _isolation(page, frames["isolation"], whole)
    _costs(page, frames["costs"])
    _forecast(page, frames["forecast"], pools)
    return page.write(out)


def facts(about: Mapping[str, Any], known: Mapping[str, str]) -> dict[str, str]:
    """Returns the facts in words: those that are known by their names, in order, then the rest."""
    named = {heading: words.fact(key, about[key]) for key, heading in known.items() if key in about}
    return named | {words.name(key): words.fact(key, value) for key, value in about.items() if key not in known}


def _answer(
    episodes: pd.DataFrame, offenders: pd.DataFrame, whole: dict[str, Any] | None, pools: list[dict[str, Any]],
    about: Mapping[str, Any],
) -> tuple[str, str]:  # fmt: skip
    """Sums up the report in a sentence or two, and says how bad it is."""
    full = [pool for pool in pools if pool["seconds_to_limit"] < SOON_S]
    warning = "".join(
        f" {pool['name'].capitalize()} is full in {words.until(pool['soonest_s'], pool['latest_s'])} if it goes on so."
        if pool["seconds_to_limit"] else f" {pool['name'].capitalize()} is full." for pool in full
    )  # fmt: skip
    if episodes.empty:
        return f"Nobody of {words.many(about['consumers'], 'consumer')} was slow.{warning}", "bad" if full else "good"
    clients = episodes["client"].nunique()
    were = "was" if clients == 1 else "were"
    shares = offenders.groupby("client")["share_of_cost"].sum()  # of all that a client reads, as in the plot
    cost = ""
    if clients > 1 and len(shares) and shares.max() > 0:
        cost = f" {words.shown(shares.idxmax())} alone caused {words.share(shares.max())} of what was held back."
    noticed = whole is not None and _noticed(whole)
    if whole is None or min(whole["seconds_with"], whole["seconds_without"]) < TOO_SHORT_S:
        others = "It cannot be said whether the others noticed."
    elif noticed:
        others = (
            f"The others noticed: 99 % of the deliveries took up to {words.ms(whole['p99_with_ms'])} with slow peers "
            f"and {words.ms(whole['p99_without_ms'])} without."
        )
    else:
        others = "The others did not notice."
    slow = f"{words.many(clients, 'consumer')} of {words.count(about['consumers'])} {were} slow, "
    slow += f"{words.many(len(episodes), 'time')} in all."
    return f"{slow} {others}{cost}{warning}", "bad" if full else "mind" if noticed else "good"


def _noticed(row: dict[str, Any]) -> bool:
    slower = row["p99_with_ms"] - row["p99_without_ms"]
    long_enough = min(row["seconds_with"], row["seconds_without"]) >= TOO_SHORT_S
    return bool(row["ratio_p99"] > NOTICED_RATIO and slower > NOTICED_MS and long_enough)


def _episodes(page: Document, frame: pd.DataFrame) -> None:
    page.section("Who was slow, and when")
    if frame.empty:
        page.nothing("Nobody was slow: no consumer had records waiting for a second or longer.")
        return
    frame = frame.assign(seconds=(frame["end"] - frame["start"]).dt.total_seconds())
    cost = frame.groupby("client")[["held_byte_seconds", "seconds"]].sum()
    clients = list(cost.sort_values(["held_byte_seconds", "seconds"], ascending=False, kind="stable").index)
    top = clients[: plots.TOP]
    others = len(clients) - len(top)
    page.plot(
        plots.episodes(frame, top),
        "Each bar is a stretch of time in which records waited for that consumer without a break; its colour says "
        "where the trouble lay. Those who cost most stand on top. Normal: nothing, or short bars now and then. A bar "
        "that reaches the right edge is a consumer that was still slow when the recording ended."
        + (f" Not drawn: {words.many(others, 'consumer')} whose episodes cost less." if others else ""),
        f"Time line of slow episodes: {words.many(len(frame), 'episode')} of {words.many(len(clients), 'consumer')}; "
        f"most costly: {', '.join(words.shown(client) for client in top[:3])}.",
    )  # fmt: skip
    causes = frame.groupby("cause").agg(
        episodes=("client", "size"), clients=("client", "nunique"), seconds=("seconds", "sum"),
        longest=("seconds", "max"), held=("held_byte_seconds", "sum"),
    )  # fmt: skip
    rows = causes.reset_index().sort_values("held", ascending=False).to_dict("records")
    page.table(rows, [
        ("cause", "where the trouble lay", words.cause), ("episodes", "episodes", words.count),
        ("clients", "consumers", words.count), ("seconds", "time in all", words.seconds),
        ("longest", "the longest", words.seconds), ("held", "held", words.held),
    ], "Episodes by cause.")  # fmt: skip


def _offenders(page: Document, frame: pd.DataFrame) -> None:
    page.section("Who cost most")
    if frame.empty:
        page.nothing("Nobody cost the others anything.")
        return
    if frame["held_byte_seconds"].sum() > 0:
        others = len(frame) - plots.TOP
        page.plot(
            plots.offenders(frame),
            "What had to be kept because a consumer had not taken it, for as long as it had to be kept, as a share "
            "of the whole; where several are late with the same records they share the cost. Normal: no bar stands out."
            + (f" {words.many(others, 'other')} cost less than these." if others > 0 else ""),
            f"Share of cost by consumer; first is {words.shown(frame['client'].iloc[0])} with "
            f"{words.share(frame['share_of_cost'].iloc[0])}.",
        )  # fmt: skip
    page.table(frame.to_dict("records"), [
        ("client", "consumer", words.shown), ("filter", "reads", words.shown), ("episodes", "episodes", words.count),
        ("slow_ms", "slow for", words.ms), ("lag_bytes_peak", "most waiting", words.size),
        ("held_byte_seconds", "held", words.held), ("share_of_cost", "share", words.share),
        ("stall_ms", "publishers held", words.ms), ("verdicts", "verdicts", words.count),
        ("disconnects", "cut", words.count), ("records_skipped", "skipped", words.count),
        ("last_seen", "last slow (UTC)", words.moment),
    ], "Those that were slow, the most costly first. 1 GB·s is 1 GB held for a second, or 1 MB for 1,000.")  # fmt: skip


def _isolation(page: Document, frame: pd.DataFrame, whole: dict[str, Any] | None) -> None:
    page.section("Did the others notice?")
    if whole is None:
        page.nothing("That cannot be said: there was no time with slow consumers, or none without, to compare it with.")
    else:
        times = words.ratio(whole["ratio_p99"])
        page.say(
            f"99 % of the deliveries took up to {words.ms(whole['p99_with_ms'])} while somebody was slow, and "
            f"{words.ms(whole['p99_without_ms'])} while nobody was: {times}. {_judgement(whole)}"
        )
        page.plot(
            plots.isolation(whole),
            "How long the broker took from reading a record to having written it to everyone who could take it, with "
            "and without slow consumers beside them. Normal: at 99 %, pairs of about equal height.",
            f"Delivery times with and without slow consumers; at 99 % the ratio is {times}.",
        )  # fmt: skip
    runs = frame[frame["run"] != ""]
    if len(runs):
        page.table((runs if len(runs) == 1 else frame).to_dict("records"), [
            ("run", "run", lambda run: words.shown(run) if run else "all"),
            ("seconds_with", "time with slow", words.seconds), ("seconds_without", "time without", words.seconds),
            ("p50_with_ms", "50 % with", words.ms), ("p50_without_ms", "without", words.ms),
            ("p99_with_ms", "99 % with", words.ms), ("p99_without_ms", "without", words.ms),
            ("max_with_ms", "longest with", words.ms), ("max_without_ms", "without", words.ms),
            ("ratio_p99", "ratio at 99 %", words.ratio),
        ], "Deliveries with and without slow consumers beside them.")  # fmt: skip


def _judgement(row: dict[str, Any]) -> str:
    """Judges the comparison in one sentence."""
    shorter = min(row["seconds_with"], row["seconds_without"])
    if shorter < TOO_SHORT_S:
        return f"One of the two lasted only {words.seconds(shorter)}, so this says little."
    if _noticed(row):
        return "That is more than chance."
    if row["ratio_p99"] > NOTICED_RATIO:
        return f"The difference of {words.ms(row['p99_with_ms'] - row['p99_without_ms'])} is too small to be noticed."
    return "The healthy did not notice."


def _costs(page: Document, frame: pd.DataFrame) -> None:
    page.section("What it cost, hour by hour")
    if frame.empty or not frame["held_byte_seconds"].sum():
        page.nothing("Nothing had to be held for anybody.")
        return
    stall = float(frame["stall_ms"].sum())
    page.say(
        f"In all {words.held(frame['held_byte_seconds'].sum())} were held, "
        + (f"publishers were held back for {words.ms(stall)}, " if stall else "no publisher was held back, ")
        + f"and {words.many(int(frame['skipped_records'].sum()), 'record')} were left out for those who were too far "
        "behind."
    )  # fmt: skip
    page.plot(
        plots.costs(frame),
        "What was held for slow consumers, times how long, in each hour. 1 GB·s is 1 GB held for a second, or 1 MB "
        "for 1,000 s. Normal: low and even. Bars that grow from hour to hour are somebody who falls ever further "
        "behind.",
        f"Held bytes by hour and consumer; {words.held(frame['held_byte_seconds'].sum())} in all.",
    )  # fmt: skip


def _forecast(page: Document, frame: pd.DataFrame, pools: list[dict[str, Any]]) -> None:
    page.section("How long until it is full")
    if not pools:
        page.nothing("There are no figures of memory and disk to go by.")
    else:
        page.plot(
            plots.forecast(pools),
            "What was used when the recording ended, and when the limit is reached if it goes on as in the last five "
            "minutes: from the fastest to the slowest growth in them. There is no forecast from less than three "
            "minutes, nor where it did not grow all the time. Memory that is full is no disaster while there is disk: "
            "the oldest goes there. When both are "
            "full, those furthest back are disconnected. Normal: well below 75 %, and not growing.",
            "; ".join(f"{pool['name']}: {_of_limit(pool)}" for pool in pools),
        )  # fmt: skip
    clients = frame[(frame["kind"] == "client") & frame["seconds_to_limit"].notna()].sort_values("seconds_to_limit")
    if clients.empty:
        page.nothing("Of no single consumer can be said that it grows steadily towards its share of the pool.")
        return
    rows = [row | {"reached": words.until(row["soonest_s"], row["latest_s"])} for row in clients.to_dict("records")]
    page.table(rows, [
        ("client", "consumer", words.shown), ("filter", "reads", words.shown), ("used_bytes", "waits now", words.size),
        ("limit_bytes", "may take up", words.size), ("growth_bytes_per_s", "growing by", words.rate),
        ("reached", "reached in", str),
    ], "Consumers on their way to the share of the pool that one client may take up, the first on top.")  # fmt: skip


def _of_limit(pool: dict[str, Any]) -> str:
    return f"{words.size(pool['used_bytes'])} of {words.size(pool['limit_bytes'])}"


def _whole(frame: pd.DataFrame) -> dict[str, Any] | None:
    """Returns the row over all runs, if there is something to compare."""
    rows = frame[(frame["run"] == "") & frame["p99_with_ms"].notna() & frame["p99_without_ms"].notna()]
    return next(iter(rows.to_dict("records")), None)


def _pools(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Returns memory and disk of the runs, with a name; a run's name only where there are several."""
    rows = frame[frame["kind"].isin(("memory", "disk")) & (frame["limit_bytes"] > 0)].to_dict("records")
    several = len({row["run"] for row in rows}) > 1
    return [
        row | {"name": f"{row['kind']} of {words.shown(row['run'])}" if several else row["kind"]} for row in rows[-10:]
    ]
