"""Measures of health: each a plain function from DataFrames of the lake to a DataFrame, one per file.

Rules:
- Rows must be there once (``lake.each_once``); their order, and the files they came in, play no part.
- Nothing here asks for a DataFrame's columns or rows: pipelines are defined before there are any.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

from headway.core.base import Cause
from headway.core.policy import (
    AHEAD,
    BLOCKED_S,
    BURST_FACTOR,
    LATE_ACK_S,
    NO_CREDIT_S,
    ON_ITS_WAY_BYTES,
    PAUSES,
    STEADY_SHARE,
    ActionKind,
)

# -- causes ------------------------------------------------------------------------------------------------------------
#
# Causes, from samples alone: the broker's questions for stretches in which no verdict was given.
#
# The broker also asks the peer's TCP; the lake does not have that. So where a socket takes nothing, it may be the
# network or an application that does not read: ``NOT_TOLD``.


NOT_TOLD = "network_or_application"


def find_cause() -> Column:
    """Finds where the trouble lies in one sample: a ``Cause``, or NOT_TOLD."""
    drains, offered = F.col("drain_rate"), F.col("offered_rate")
    blocked_ms = F.col("blocked_ms")
    usual_ms = F.coalesce(F.col("usual_pause_ms"), F.lit(0.0))  # null in lakes of before
    exhausted_ms, in_flight = F.col("credit_exhausted_ms"), F.col("in_flight")
    on_its_way_ms = F.when(exhausted_ms > 0, usual_ms * PAUSES * in_flight).otherwise(
        F.when(drains > 0, F.lit(ON_ITS_WAY_BYTES * 1000) / drains).otherwise(0.0)
    )
    late = (F.col("ack_age_ms") >= F.greatest(F.lit(LATE_ACK_S * 1000), on_its_way_ms)) & (in_flight > 0)
    full_ms = F.greatest(F.lit(NO_CREDIT_S * 1000), usual_ms * PAUSES)
    no_credit = (exhausted_ms >= full_ms) | ((exhausted_ms > 0) & (drains <= 0))
    stands = blocked_ms >= F.greatest(F.lit(BLOCKED_S * 1000), usual_ms * PAUSES)
    steady = (drains > 0) & ~stands & (drains >= offered * STEADY_SHARE)
    ahead = drains > offered * AHEAD
    return (
        F.when(no_credit | late, F.lit(Cause.APPLICATION.value))
        .when(steady & ((F.col("offered_burst") > BURST_FACTOR) | ahead), Cause.PRODUCER_BURST.value)
        .when(steady, Cause.OVER_SUBSCRIPTION.value)
        .when(blocked_ms > 0, NOT_TOLD)
        .otherwise(Cause.APPLICATION.value)
    )


# -- forecast ----------------------------------------------------------------------------------------------------------
#
# Forecast: how long until a limit is reached, if it goes on as in the last minutes of each run.
#
# Growth is the slope of the straight line through what was held (least squares). It is worked out three times: for all
# of the last minutes, and for their first and second half. The three differ as much as the growth does, so the fastest
# of them gives the soonest moment and the slowest the latest. There is no forecast from less than ``SEEN_MIN_S`` of
# samples, nor where one of the three does not grow.
#
# Pools are held against their limits, and clients that lag at the end against the share of the global pool that one
# client may hold: of its disk, or of its memory where there is no disk.


WINDOW_S = 300.0
SEEN_MIN_S = 180.0
GROWTH_MIN = 1.0
"""The least growth that counts, bytes per second."""
COLUMNS = ("run", "kind", "client", "filter", "used_bytes", "limit_bytes", "seen_s", "growth_bytes_per_s")
SLOPES = ("growth_bytes_per_s", "first_growth", "second_growth")


def forecast(broker_samples: DataFrame, samples: DataFrame, configs: DataFrame) -> DataFrame:
    """One row per run and pool, and per run and client that lags when it ends.

    From ``broker_samples``, ``consumer_samples`` and ``configs``: run, kind (``memory``, ``disk`` or ``client``),
    client and filter (where it lags most; empty for pools), used_bytes, limit_bytes, seen_s (the time that it is worked
    out from), growth_bytes_per_s, seconds_to_limit, soonest_s and latest_s (0: it is there; null: it does not grow
    steadily, or too little was seen to say).
    """
    ends = broker_samples.groupBy("run").agg(F.max("time").alias("run_end"), F.min("time").alias("run_start"))
    pools = _last_minutes(broker_samples, ends)
    rows = _pool(pools, "memory").union(_pool(pools, "disk")).union(_clients(samples, ends, configs))
    left = F.col("limit_bytes") - F.col("used_bytes")
    steady = (F.col("seen_s") >= SEEN_MIN_S) & (F.least(*(_or_nought(name) for name in SLOPES)) >= GROWTH_MIN)

    def until(growth: Column) -> Column:
        return F.when(left <= 0, F.lit(0.0)).when(steady, left / growth)

    return rows.select(
        *COLUMNS, until(F.col("growth_bytes_per_s")).alias("seconds_to_limit"),
        until(F.greatest(*SLOPES)).alias("soonest_s"), until(F.least(*SLOPES)).alias("latest_s"),
    )  # fmt: skip


def _or_nought(name: str) -> Column:
    return F.coalesce(F.col(name), F.lit(0.0))


def _last_minutes(rows: DataFrame, ends: DataFrame) -> DataFrame:
    """Keeps the rows within the window before their run's end, with ``ago`` in seconds (0 at the end, negative before)
    and ``middle``, where the second half begins."""
    ago = (F.unix_micros("time") - F.unix_micros("run_end")) / F.lit(1e6)
    ran_s = (F.unix_micros("run_end") - F.unix_micros("run_start")) / F.lit(1e6)
    middle = -F.least(ran_s, F.lit(WINDOW_S)) / 2
    joined = rows.join(F.broadcast(ends), "run").withColumn("ago", ago).withColumn("middle", middle)
    return joined.where(F.col("ago") >= -WINDOW_S)


def _slopes(used: str) -> list[Column]:
    """The growth, over all and in each half; null: there are too few samples."""
    value, ago = F.col(used).cast("double"), F.col("ago")
    second = F.col("ago") >= F.col("middle")
    whole = F.coalesce(F.regr_slope(value, ago), F.lit(0.0))
    halves = (F.regr_slope(F.when(half, value), ago) for half in (~second, second))
    return [slope.alias(name) for name, slope in zip(SLOPES, (whole, *halves), strict=True)]


def _seen() -> Column:
    return (F.max("ago") - F.min("ago")).alias("seen_s")


def _pool(rows: DataFrame, kind: str) -> DataFrame:
    used, limit = f"{kind}_bytes", f"{kind}_limit_bytes"
    return (
        rows.groupBy("run")
        .agg(
            F.lit(kind).alias("kind"),
            F.lit("").alias("client"),
            F.lit("").alias("filter"),
            F.max_by(used, "seq").alias("used_bytes"),
            F.max_by(limit, "seq").alias("limit_bytes"),
            _seen(),
            *_slopes(used),
        )
        .where(F.col("limit_bytes") > 0)
        .select(*COLUMNS, *SLOPES[1:])
    )


def _clients(samples: DataFrame, ends: DataFrame, configs: DataFrame) -> DataFrame:
    """A client grows as its subscriptions do together; it was seen for as long as the one that waits least long."""
    pool = F.when(F.col("disk_limit_bytes") > 0, F.col("disk_limit_bytes")).otherwise(F.col("memory_limit_bytes"))
    share = (pool * F.col("client_share")).cast("long")
    limits = configs.groupBy("run").agg(F.max_by(share, "seq").alias("limit_bytes"))
    at_end = _last_minutes(samples, ends).groupBy("run", "subscription").agg(
        F.max_by(F.struct("client", "filter", "lag_bytes", "lag_records", "ended"), "seq").alias("now"),
        _seen(), *_slopes("lag_bytes"),
    )  # fmt: skip
    return (
        at_end.where("now.lag_records > 0 AND now.ended = ''")
        .groupBy("run", F.col("now.client").alias("client"))
        .agg(
            F.lit("client").alias("kind"),
            F.max_by("now.filter", "now.lag_bytes").alias("filter"),
            F.sum("now.lag_bytes").alias("used_bytes"),
            F.min("seen_s").alias("seen_s"),
            *(F.sum(_or_nought(name)).alias(name) for name in SLOPES),
        )
        .join(F.broadcast(limits), "run")
        .select(*COLUMNS, *SLOPES[1:])
    )


# -- isolation ---------------------------------------------------------------------------------------------------------
#
# Isolation: how long deliveries took while somebody was slow, and while nobody was.
#
# The broker reports each second the percentiles of the turns in it. Those of many seconds are put together weighted by
# their turns: the p99 of a stretch is what 99 % of the turns stayed below in its average second. A second counts as one
# with slow peers if somebody was marked slow in it, or lagged by more than ``LATE_MS``.


LATE_MS = 1000.0
ALL = ""
"""The name of the run in the row over all runs."""


def isolation(broker_samples: DataFrame, samples: DataFrame) -> DataFrame:
    """One row per run and one over all (run ""). From ``broker_samples`` and ``consumer_samples``.

    run, seconds_with, seconds_without; p50_with_ms, p99_with_ms, max_with_ms and the same _without_ms (null if there
    was no such second with a turn in it); ratio_p99 (with : without; null if either is missing).
    """
    second = F.date_trunc("second", "time")
    late = samples.where(F.col("lag_age_ms") > LATE_MS).select("run", second.alias("second"))
    # The two are not sampled at the same instant: a broker's row is about the second that ends with it.
    after = late.select("run", (F.col("second") + F.expr("INTERVAL 1 SECOND")).alias("second"))
    late = late.union(after).distinct().withColumn("late", F.lit(True))
    rows = broker_samples.withColumn("second", second).join(late, ["run", "second"], "left")
    rows = rows.withColumn("with", (F.col("slow") > 0) | F.coalesce("late", F.lit(False)))
    figures = [column for side in (True, False) for column in _figures(side)]
    ratio = F.try_divide("p99_with_ms", "p99_without_ms")
    per_run = rows.groupBy("run").agg(*figures)
    over_all = rows.groupBy().agg(*figures).select(F.lit(ALL).alias("run"), "*")
    return over_all.where("seconds_with + seconds_without > 0").union(per_run).withColumn("ratio_p99", ratio)


def _figures(side: bool) -> list[Column]:
    name = "with" if side else "without"
    there = F.col("with") == F.lit(side)
    turns = F.sum(F.when(there, F.col("turns")))

    def weighted(column: str) -> Column:
        return F.try_divide(F.sum(F.when(there, F.col(column) * F.col("turns"))), turns)

    return [
        F.count_if(there).alias(f"seconds_{name}"),
        weighted("delivery_p50_ms").alias(f"p50_{name}_ms"),
        weighted("delivery_p99_ms").alias(f"p99_{name}_ms"),
        F.max(F.when(there & (F.col("turns") > 0), F.col("delivery_max_ms"))).alias(f"max_{name}_ms"),
    ]


# -- offenders ---------------------------------------------------------------------------------------------------------
#
# Offenders: who had slow episodes, over all runs, and what they cost.


_WHO = ["client", "filter"]


def offenders(episodes: DataFrame, costs: DataFrame, verdicts: DataFrame) -> DataFrame:
    """One row per client and filter with an episode. From ``slow_episodes``, ``costs`` and the lake's ``verdicts``.

    client, filter, episodes, slow_ms (their lengths added up), lag_bytes_peak, held_byte_seconds, stall_ms, verdicts,
    disconnects (enforced), records_skipped, share_of_cost (0 to 1, of all bytes held × seconds), last_seen (in an
    episode).
    """
    lengths_ms = (F.unix_micros("end") - F.unix_micros("start")) / F.lit(1000.0)
    slow = episodes.groupBy(*_WHO).agg(
        F.count("*").alias("episodes"),
        F.sum(lengths_ms).alias("slow_ms"),
        F.max("lag_bytes_peak").alias("lag_bytes_peak"),
        F.max("end").alias("last_seen"),
    )
    spent = costs.groupBy(*_WHO).agg(
        F.sum("held_byte_seconds").alias("held_byte_seconds"),
        F.sum("stall_ms").alias("stall_ms"),
        F.sum("skipped_records").alias("records_skipped"),
    )
    all_spent = costs.agg(F.sum("held_byte_seconds").alias("all_held"))
    disconnected = F.col("enforced") & (F.col("action") == str(ActionKind.DISCONNECT))
    judged = (
        verdicts.where(F.col("kind") == "fire")
        .groupBy(*_WHO)
        .agg(F.count("*").alias("verdicts"), F.count_if(disconnected).alias("disconnects"))
    )
    share = F.coalesce(F.try_divide("held_byte_seconds", "all_held"), F.lit(0.0))
    return (
        slow.join(spent, _WHO, "left")
        .join(judged, _WHO, "left")
        .crossJoin(F.broadcast(all_spent))
        .select(
            *_WHO, "episodes", "slow_ms", "lag_bytes_peak", _or_zero("held_byte_seconds"), _or_zero("stall_ms"),
            _or_zero("verdicts"), _or_zero("disconnects"), _or_zero("records_skipped"), share.alias("share_of_cost"),
            "last_seen",
        )
    )  # fmt: skip


def _or_zero(name: str) -> Column:
    """Returns the figure, or 0: consumers that cost nothing, or were never judged, have no row to join with."""
    return F.coalesce(name, F.lit(0)).alias(name)


# -- spans -------------------------------------------------------------------------------------------------------------
#
# Spans: the time that each sample stands for, and what happened since the sample before it.
#
# Rules:
# - Samples are ordered by their number, not by their time. A clock that was set back makes no negative time.
# - A sample speaks for half the way to each of its neighbours, so that what adds up over samples is the integral of the
#   straight lines between them (the trapezoid rule), whatever they are grouped by.
# - A consumer that lags is sampled each second or so. Hence between one sample that lags and one that does not it
# changed
#   within ``EDGE_S`` of the one that does; and where two that lag lie further apart than the gap allows, nothing is
#   known
#   of the time between.
# - Counters are cumulative, so their growth is what happened, also across lost files. What a subscription had before
# the
#   first sample that there is happened at an unknown time, and is left out, unless it is its very first sample.


GAP_S = 30.0
"""The longest gap between two samples of one stretch of lag."""
EDGE_S = 1.0


def spans(samples: DataFrame) -> DataFrame:
    """Adds to each row of ``consumer_samples``:

    ``lagging`` flag; ``begins`` and ``follows`` flags: the first of a stretch of lag, and the row after one that lags;
    ``last`` flag: there is no later one; ``seconds`` that it speaks for; ``stall_ms`` and ``skipped`` (records) since
    the row before.
    """
    row = Window.partitionBy("run", "subscription").orderBy("seq")
    lagging = (F.col("lag_records") > 0) | F.col("slow")
    marked = samples.withColumn("lagging", lagging)
    before, after = F.lag("lagging").over(row), F.lead("lagging").over(row)
    since, until = _seconds(F.lag("time").over(row), F.col("time")), _seconds(F.col("time"), F.lead("time").over(row))
    joined = F.coalesce(before & (since <= GAP_S), F.lit(False))
    return marked.select(
        "*",
        (F.col("lagging") & ~joined).alias("begins"),
        (~F.col("lagging") & joined).alias("follows"),
        after.isNull().alias("last"),
        ((_reach(before, since) + _reach(after, until)) / 2).alias("seconds"),
        _growth("producer_stall_ms", row).alias("stall_ms"),
        _growth("skipped_records", row).alias("skipped"),
    )


def _seconds(earlier: Column, later: Column) -> Column:
    return F.greatest(F.lit(0.0), (F.unix_micros(later) - F.unix_micros(earlier)) / F.lit(1e6))


def _reach(neighbour: Column, seconds: Column) -> Column:
    """Returns how much of the way to its neighbour is known; ``neighbour``: whether that one lags, null if there is
    none."""
    whole = (neighbour == F.col("lagging")) & (~neighbour | (seconds <= GAP_S))
    known = F.when(whole, seconds).otherwise(F.least(seconds, F.lit(EDGE_S)))
    return F.when(neighbour.isNull(), F.lit(0.0)).otherwise(known)


def _growth(counter: str, row: WindowSpec) -> Column:
    unknown = F.when(F.col("seq") <= 1, F.lit(0)).otherwise(F.col(counter))
    return F.greatest(F.lit(0), F.col(counter) - F.coalesce(F.lag(counter).over(row), unknown))


# -- costs -------------------------------------------------------------------------------------------------------------
#
# Costs: what each consumer cost the others, hour by hour.
#
# - Bytes held × seconds: what was kept in memory or on disk on its account.
# - Milliseconds for which publishers were held back for it, and records a policy left out for it, in the hour in which
#   they were first seen.


def costs(samples: DataFrame) -> DataFrame:
    """One row per run, client, filter and hour in which it cost anything. From ``consumer_samples``.

    run, client, filter, hour (its beginning, UTC), held_byte_seconds, stall_ms, skipped_records.
    """
    return (
        spans(samples)
        .groupBy("run", "client", "filter", F.date_trunc("hour", "time").alias("hour"))
        .agg(
            F.sum(F.col("held_bytes") * F.col("seconds")).alias("held_byte_seconds"),
            F.sum("stall_ms").alias("stall_ms"),
            F.sum("skipped").alias("skipped_records"),
        )
        .where("held_byte_seconds > 0 OR stall_ms > 0 OR skipped_records > 0")
    )


# -- episodes ----------------------------------------------------------------------------------------------------------
#
# Slow episodes: stretches in which one subscription lagged without a break.
#
# Rules:
# - Samples that lag (records wait, or it is marked slow) and lie no further apart than the gap are one episode. One
# that
#   is shorter than ``LENGTH_MIN_S`` is no episode, unless a verdict was given or somebody paid for it.
# - The sample after the last one that lags is its end: what was skipped and stalled until then belongs to it.
# - It is ``open`` when it ends with the recording, not with the lag.
# - The verdict shown is the severest: enforced before dry run, then by action, then the earliest. Its cause is the
#   episode's; without one, that is what most of its samples speak for.


LENGTH_MIN_S = 1.0
SLACK_S = 2.0
"""The time by which a verdict may come before the first sample that shows the lag, or after the last one."""
_SEVERITY = {str(action): rank for rank, action in enumerate(ActionKind)}

_ONE = ("run", "subscription", "episode")


def slow_episodes(samples: DataFrame, verdicts: DataFrame) -> DataFrame:
    """One row per episode. From ``consumer_samples`` and ``verdicts``.

    run, broker, client, filter, lane, subscription, start, end (its last sample that lags), open, cause, reason,
    action, lag_records_peak, lag_bytes_peak, lag_age_peak_ms, held_byte_seconds, stall_ms, records_skipped, verdicts,
    ended (how the subscription ended in it; else empty).
    """
    found = _stretches(spans(samples))
    judged = _judged(found, verdicts)
    lasted = F.unix_micros("end") - F.unix_micros("start") >= int(LENGTH_MIN_S * 1e6)
    paid = (F.col("stall_ms") > 0) | (F.col("records_skipped") > 0)
    return (
        found.join(judged, list(_ONE), "left")
        .withColumn("verdicts", F.coalesce("verdicts", F.lit(0)))
        .where(lasted | paid | (F.col("verdicts") > 0))
        .select(
            "run", "broker", "client", "filter", "lane", "subscription", "start", "end", "open",
            F.coalesce(F.nullif("verdict.cause", F.lit("")), "sampled_cause").alias("cause"),
            F.coalesce("verdict.reason", F.lit("")).alias("reason"),
            F.coalesce("verdict.action", F.lit("")).alias("action"),
            "lag_records_peak", "lag_bytes_peak", "lag_age_peak_ms", "held_byte_seconds", "stall_ms",
            "records_skipped", "verdicts", "ended",
        )
    )  # fmt: skip


def _stretches(rows: DataFrame) -> DataFrame:
    so_far = Window.partitionBy("run", "subscription").orderBy("seq").rowsBetween(Window.unboundedPreceding, 0)
    lagging = F.col("lagging")
    return (
        rows.withColumn("episode", F.sum(F.col("begins").cast("int")).over(so_far))
        .where(lagging | F.col("follows"))
        .groupBy(*_ONE)
        .agg(
            *(F.first(name).alias(name) for name in ("broker", "client", "filter", "lane")),
            F.min("time").alias("start"),
            F.max(F.when(lagging, F.col("time"))).alias("end"),
            F.max(F.col("last") & lagging & (F.col("ended") == "")).alias("open"),
            F.mode(F.when(lagging, find_cause()), deterministic=True).alias("sampled_cause"),
            F.max("lag_records").alias("lag_records_peak"),
            F.max("lag_bytes").alias("lag_bytes_peak"),
            F.max("lag_age_ms").alias("lag_age_peak_ms"),
            F.sum(F.col("held_bytes") * F.col("seconds")).alias("held_byte_seconds"),
            F.sum("stall_ms").alias("stall_ms"),
            F.sum("skipped").alias("records_skipped"),
            F.max("ended").alias("ended"),
        )
    )


def _judged(found: DataFrame, verdicts: DataFrame) -> DataFrame:
    """Counts each episode's verdicts, and finds the severest."""
    fired = verdicts.where(F.col("kind") == "fire").select(
        F.col("run"), F.col("subscription"), F.col("time").alias("judged"), "number", "enforced", "action", "reason",
        "cause",
    )  # fmt: skip
    slack = F.make_dt_interval(secs=F.lit(SLACK_S))
    within = F.col("judged").between(F.col("start") - slack, F.col("end") + slack)
    severity = F.coalesce(*(F.when(F.col("action") == action, rank) for action, rank in _SEVERITY.items()), F.lit(-1))
    return (
        found.select(*_ONE, "start", "end")
        .join(fired, ["run", "subscription"])
        .where(within)
        .groupBy(*_ONE)
        .agg(
            F.count("*").alias("verdicts"),
            F.max_by(
                F.struct("cause", "reason", "action"), F.struct("enforced", severity, -F.col("number"))
            ).alias("verdict"),
        )
    )  # fmt: skip
