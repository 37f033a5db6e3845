"""Offenders: who had slow episodes, over all runs, and what they cost."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headway.core.policy import ActionKind

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
