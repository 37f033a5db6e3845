"""Tokens of the admin API. A token is generated here and has so many random bits that its hash need not be slow: the
config has ``$sha256$HASH``."""

from __future__ import annotations

import hashlib
import re
import secrets

from headway.core.base import ConfigError
from headway.server.config.auth.base64 import encode

TOKEN_BYTES = 32
_SHA256 = "$sha256$"
_TOKEN = re.compile(r"\$sha256\$[A-Za-z0-9+/]{43}", re.ASCII)


def new_token() -> tuple[str, str]:
    """Returns a new token, and its digest for the config's ``[auth.tokens]``."""
    token = secrets.token_urlsafe(TOKEN_BYTES)
    return token, digest_of(token)


def digest_of(token: str) -> str:
    """Returns the digest of a token that a client sent; it may be any bytes."""
    raw = token.encode(errors="surrogateescape")
    return f"{_SHA256}{encode(hashlib.sha256(raw).digest())}"


def check_digest(digest: object) -> str:
    """Returns ``digest`` if it can be a token's. Errors never show it, because it may be the token."""
    if not isinstance(digest, str) or not _TOKEN.fullmatch(digest):
        raise ConfigError("is not a token's digest: make one with `headway passwd --token NAME`")
    return digest
