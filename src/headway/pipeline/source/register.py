"""The format "headway" for a session that has not found it by itself (a server elsewhere, Headway sent along)."""

from __future__ import annotations

from pyspark.sql import SparkSession

from headway.pipeline.source.source import HeadwayDataSource


def register(spark: SparkSession | None = None) -> None:
    """Registers the format for this session; without one for the active session, if there is any."""
    session = spark or _active()
    if session is not None:
        session.dataSource.register(HeadwayDataSource)


def _active() -> SparkSession | None:
    return SparkSession.getActiveSession()
