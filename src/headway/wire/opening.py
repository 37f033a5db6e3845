"""The first bytes of a connection, by which a codec knows its protocol (``Codec.opens``)."""

from __future__ import annotations


def begins(data: bytes, *words: bytes) -> bool | None:
    """Returns whether the bytes begin with one of the words; None: there are too few to tell."""
    if data.startswith(words):
        return True
    return None if any(word.startswith(data) for word in words) else False
