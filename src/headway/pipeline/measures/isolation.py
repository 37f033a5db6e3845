"""Isolation: how long deliveries took while somebody was slow, and while nobody was.

The broker reports each second the percentiles of the turns in it. Those of many seconds are put together weighted by
their turns: the p99 of a stretch is what 99 % of the turns stayed below in its average second. A second counts as one
with slow peers if somebody was marked slow in it, or lagged by more than ``LATE_MS``.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

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
