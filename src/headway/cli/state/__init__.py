"""``headway query``: the state of a keyed topic."""

from headway.cli.state.command import query

__all__ = [
    "query",
]
