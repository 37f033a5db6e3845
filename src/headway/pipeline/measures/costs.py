"""Costs: what each consumer cost the others, hour by hour.

- Bytes held × seconds: what was kept in memory or on disk on its account.
- Milliseconds for which publishers were held back for it, and records a policy left out for it, in the hour in which
  they were first seen.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headway.pipeline.measures.spans import spans


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
