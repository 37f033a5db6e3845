"""Live queries: pages of a state in an order, and aggregates of it, kept up to date for their subscribers."""

from headway.core.live.live_queries import LiveQueries, live_bytes

__all__ = ["live_bytes", "LiveQueries"]
