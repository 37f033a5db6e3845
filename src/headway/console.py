"""Text for people: strangers' names made safe to show, and counts with their nouns."""

from __future__ import annotations

from headway.core.base import format_count


def printable(text: object) -> str:
    """Returns the text as one line that cannot reach a terminal as a control sequence: clients choose names freely."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in str(text))


def many(count: float, noun: str) -> str:
    """``1 batch``, ``3 batches``, ``0 queues``, ``2 keys``."""
    ies = noun.endswith("y") and noun[-2] not in "aeou"
    plural = noun[:-1] + "ies" if ies else noun + ("es" if noun[-1] in "shx" else "s")
    return f"{format_count(count)} {noun if count == 1 else plural}"
