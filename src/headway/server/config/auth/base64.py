"""Base64 as hashes have it: with padding or without."""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode

from headway.core.base import ConfigError


def encode(raw: bytes) -> str:
    """Returns the base64 of ``raw``, without padding."""
    return b64encode(raw).decode().rstrip("=")


def encode_padded(raw: bytes) -> str:
    """Returns the base64 of ``raw``."""
    return b64encode(raw).decode()


def decode(what: str, again: str, *texts: str) -> list[bytes]:
    """Returns the bytes of base64 texts. Raises ConfigError, which says of what they are, and how to have a new one."""
    bare = [text.rstrip("=") for text in texts]
    try:
        return [b64decode(text + "=" * (-len(text) % 4), validate=True) for text in bare]
    except binascii.Error:
        raise ConfigError(f"is {what} with damaged base64: {again}") from None
