"""``import headway.spark``: the active session knows the format "headway" also where Spark does not find it itself."""

from __future__ import annotations

from headway.pipeline.source.register import register

__all__ = ["register"]

register()
