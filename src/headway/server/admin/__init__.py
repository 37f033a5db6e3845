"""The admin API: figures for people, ``headway top`` and Prometheus."""

from headway.server.admin.api import Admin

__all__ = [
    "Admin",
]
