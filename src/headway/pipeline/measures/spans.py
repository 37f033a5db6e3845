"""Spans: the time that each sample stands for, and what happened since the sample before it.

Rules:
- Samples are ordered by their number, not by their time. A clock that was set back makes no negative time.
- A sample speaks for half the way to each of its neighbours, so that what adds up over samples is the integral of the
  straight lines between them (the trapezoid rule), whatever they are grouped by.
- A consumer that lags is sampled each second or so. Hence between one sample that lags and one that does not it changed
  within ``EDGE_S`` of the one that does; and where two that lag lie further apart than the gap allows, nothing is known
  of the time between.
- Counters are cumulative, so their growth is what happened, also across lost files. What a subscription had before the
  first sample that there is happened at an unknown time, and is left out, unless it is its very first sample.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

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
