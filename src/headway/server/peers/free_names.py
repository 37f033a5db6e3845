"""Free names: the names of clients that may be called like others, whose connection is their session."""

from __future__ import annotations

from collections.abc import Container


def free_name(wanted: str, taken: Container[str]) -> str:
    """Returns a name that is not taken: this one, or with a number. Few are tried, though very many clients have the
    same: numbers are doubled until one is free, and halfway between a taken and a free one until these are neighbours.
    """
    if wanted not in taken:
        return wanted
    low, free = 1, 2
    while f"{wanted}#{free}" in taken:
        low, free = free, 2 * free
    while free - low > 1:
        middle = (low + free) // 2
        if f"{wanted}#{middle}" in taken:
            low = middle
        else:
            free = middle
    return f"{wanted}#{free}"
