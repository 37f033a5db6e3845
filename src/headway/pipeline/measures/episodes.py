"""Slow episodes: stretches in which one subscription lagged without a break.

Rules:
- Samples that lag (records wait, or it is marked slow) and lie no further apart than the gap are one episode. One that
  is shorter than ``LENGTH_MIN_S`` is no episode, unless a verdict was given or somebody paid for it.
- The sample after the last one that lags is its end: what was skipped and stalled until then belongs to it.
- It is ``open`` when it ends with the recording, not with the lag.
- The verdict shown is the severest: enforced before dry run, then by action, then the earliest. Its cause is the
  episode's; without one, that is what most of its samples speak for.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from headway.core.policy import ActionKind
from headway.pipeline.measures.causes import find_cause
from headway.pipeline.measures.spans import spans

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
