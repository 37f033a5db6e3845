"""Forecast: how long until a limit is reached, if it goes on as in the last minutes of each run.

Growth is the slope of the straight line through what was held (least squares). It is worked out three times: for all of
the last minutes, and for their first and second half. The three differ as much as the growth does, so the fastest of
them gives the soonest moment and the slowest the latest. There is no forecast from less than ``SEEN_MIN_S`` of samples,
nor where one of the three does not grow.

Pools are held against their limits, and clients that lag at the end against the share of the global pool that one
client may hold: of its disk, or of its memory where there is no disk.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

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
