"""The admin API: what there is, for people, ``headway top`` and Prometheus."""

from headway.server.admin.api import Admin

__all__ = [
    "Admin",
]
