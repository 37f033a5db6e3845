"""The two reports: one self-contained HTML file each (see ``html.Document`` for what every page keeps to)."""

from __future__ import annotations

from headway.pipeline.report.health import health_report
from headway.pipeline.report.lab import lab_report

__all__ = ["health_report", "lab_report"]
