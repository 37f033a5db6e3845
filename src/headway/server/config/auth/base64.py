"""Base64 as hashes have it: with padding or without."""

from __future__ import annotations

from base64 import b64decode, b64encode


def encode(raw: bytes) -> str:
    """Returns the base64 of ``raw``, without padding."""
    return b64encode(raw).decode().rstrip("=")


def encode_padded(raw: bytes) -> str:
    """Returns the base64 of ``raw``."""
    return b64encode(raw).decode()


def decode(text: str) -> bytes:
    """Returns the bytes of a base64 text. Raises binascii.Error."""
    text = text.rstrip("=")
    return b64decode(text + "=" * (-len(text) % 4), validate=True)
