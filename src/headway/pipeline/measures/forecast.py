"""Forecast: how long until a limit is reached, if it goes on as in the last minutes of each run.

Growth is the slope of the straight line through what was held (least squares). Pools are held against their limits, and
clients that lag at the end against the share of the global pool that one client may hold: of its disk, or of its memory
where there is no disk.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

WINDOW_S = 300.0
GROWTH_MIN = 1.0
"""The least growth that counts, bytes per second."""
COLUMNS = ("run", "kind", "client", "filter", "used_bytes", "limit_bytes", "growth_bytes_per_s")


def forecast(
    broker_samples: DataFrame, samples: DataFrame, configs: DataFrame, window_s: float = WINDOW_S
) -> DataFrame:
    """One row per run and pool, and per run and client that lags when it ends.

    From ``broker_samples``, ``consumer_samples`` and ``configs``: run, kind (``memory``, ``disk`` or ``client``),
    client and filter (where it lags most; empty for pools), used_bytes, limit_bytes, growth_bytes_per_s,
    seconds_to_limit (0: it is there; null: it does not grow).
    """
    ends = broker_samples.groupBy("run").agg(F.max("time").alias("run_end"))
    pools = _last_minutes(broker_samples, ends, window_s)
    rows = _pool(pools, "memory").union(_pool(pools, "disk")).union(_clients(samples, ends, configs, window_s))
    left = F.col("limit_bytes") - F.col("used_bytes")
    growth = F.col("growth_bytes_per_s")
    until = F.when(left <= 0, F.lit(0.0)).when(growth >= GROWTH_MIN, left / growth)
    return rows.withColumn("seconds_to_limit", until)


def _last_minutes(rows: DataFrame, ends: DataFrame, window_s: float) -> DataFrame:
    """Keeps the rows within the window before their run's end, with ``ago`` in seconds: 0 at the end, negative
    before."""
    ago = (F.unix_micros("time") - F.unix_micros("run_end")) / F.lit(1e6)
    return rows.join(F.broadcast(ends), "run").withColumn("ago", ago).where(F.col("ago") >= -window_s)


def _slope(used: str) -> Column:
    return F.coalesce(F.regr_slope(F.col(used).cast("double"), F.col("ago")), F.lit(0.0))


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
            _slope(used).alias("growth_bytes_per_s"),
        )
        .where(F.col("limit_bytes") > 0)
        .select(*COLUMNS)
    )


def _clients(samples: DataFrame, ends: DataFrame, configs: DataFrame, window_s: float) -> DataFrame:
    pool = F.when(F.col("disk_limit_bytes") > 0, F.col("disk_limit_bytes")).otherwise(F.col("memory_limit_bytes"))
    share = (pool * F.col("client_share")).cast("long")
    limits = configs.groupBy("run").agg(F.max_by(share, "seq").alias("limit_bytes"))
    at_end = _last_minutes(samples, ends, window_s).groupBy("run", "subscription").agg(
        F.max_by(F.struct("client", "filter", "lag_bytes", "lag_records", "ended"), "seq").alias("now"),
        _slope("lag_bytes").alias("growth"),
    )  # fmt: skip
    return (
        at_end.where("now.lag_records > 0 AND now.ended = ''")
        .groupBy("run", F.col("now.client").alias("client"))
        .agg(
            F.lit("client").alias("kind"),
            F.max_by("now.filter", "now.lag_bytes").alias("filter"),
            F.sum("now.lag_bytes").alias("used_bytes"),
            F.sum("growth").alias("growth_bytes_per_s"),
        )
        .join(F.broadcast(limits), "run")
        .select(*COLUMNS)
    )
