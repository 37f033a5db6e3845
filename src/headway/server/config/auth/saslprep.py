"""SASLprep (RFC 4013): the one form of a name or password that may be written in several ways."""

from __future__ import annotations

import stringprep
import unicodedata

_PROHIBITED = (
    stringprep.in_table_c12, stringprep.in_table_c21_c22, stringprep.in_table_c3, stringprep.in_table_c4,
    stringprep.in_table_c5, stringprep.in_table_c6, stringprep.in_table_c7, stringprep.in_table_c8,
    stringprep.in_table_c9, stringprep.in_table_a1,
)  # fmt: skip


CHARS_MAX = 256
"""Longer texts are not prepared: names and passwords have no such length, and anybody can send one before a login. One
of 64 KiB held up the broker for two seconds, for a character may become 18, and accents are sorted one by one."""


def saslprep(text: str) -> str:
    """Returns the prepared text. One that may not be prepared is returned as it is, as PostgreSQL does it."""
    if (text.isascii() and text.isprintable()) or len(text) > CHARS_MAX:
        return text
    mapped = "".join(
        " " if stringprep.in_table_c12(char) else char for char in text if not stringprep.in_table_b1(char)
    )
    prepared = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)
    chars = set(prepared)
    if not prepared or any(prohibited(char) for char in chars for prohibited in _PROHIBITED):
        return text
    if any(map(stringprep.in_table_d1, chars)):  # right to left
        ends = stringprep.in_table_d1(prepared[0]) and stringprep.in_table_d1(prepared[-1])
        if not ends or any(map(stringprep.in_table_d2, chars)):
            return text
    return prepared
