"""Spark looks for packages of this kind of name by itself, and finds the format "headway" here."""

from headway.pipeline.source.source import HeadwayDataSource as DefaultSource

__all__ = ["DefaultSource"]
