"""Passwords as SCRAM-SHA-256 (RFC 5802, 7677) keeps them: ``SCRAM-SHA-256$ITERATIONS:SALT$STOREDKEY:SERVERKEY``, as
PostgreSQL writes it. Who has this can check a login, and cannot log in."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import NamedTuple

from headway.core.base import ConfigError
from headway.server.config.auth.base64 import decode, encode_padded
from headway.server.config.auth.saslprep import saslprep

PREFIX = "SCRAM-SHA-256$"
ITERATIONS = 15_000
ITERATIONS_MIN, ITERATIONS_MAX = 4096, 2_000_000
"""RFC 7677 asks for the least; the most takes about a second, where a password comes in clear."""
SALT_BYTES = 16
KEY_BYTES = 32
_FORM = re.compile(r"SCRAM-SHA-256\$(\d{1,10}):([A-Za-z0-9+/]+=*)\$([A-Za-z0-9+/]+=*):([A-Za-z0-9+/]+=*)", re.ASCII)
_AGAIN = "make a new one with `headway passwd --scram`"


class ScramKeys(NamedTuple):
    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes


def keys_for(password: bytes, salt: bytes, iterations: int) -> ScramKeys:
    """Returns the keys of a password."""
    try:
        prepared = saslprep(password.decode()).encode()
    except UnicodeDecodeError:
        prepared = password
    salted = hashlib.pbkdf2_hmac("sha256", prepared, salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    return ScramKeys(
        iterations, salt, hashlib.sha256(client_key).digest(), hmac.digest(salted, b"Server Key", "sha256")
    )


def make(password: bytes) -> str:
    """Returns a new hash."""
    return text_of(keys_for(password, secrets.token_bytes(SALT_BYTES), ITERATIONS))


def text_of(keys: ScramKeys) -> str:
    """Returns the hash that has these keys."""
    salt, stored, server = (encode_padded(raw) for raw in (keys.salt, keys.stored_key, keys.server_key))
    return f"{PREFIX}{keys.iterations}:{salt}${stored}:{server}"


def verify(password: bytes, hashed: str) -> bool:
    """Returns whether ``hashed`` is of ``password``, for clients that send it in clear."""
    keys = keys_of(hashed)
    return hmac.compare_digest(keys_for(password, keys.salt, keys.iterations).stored_key, keys.stored_key)


def keys_of(hashed: str) -> ScramKeys:
    """Returns the keys in a hash. Raises ConfigError."""
    match = _FORM.fullmatch(hashed)
    if match is None:
        raise ConfigError(f"is not a whole SCRAM-SHA-256 hash: {_AGAIN}")
    iterations = int(match[1])
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise ConfigError(
            f"is a SCRAM-SHA-256 hash with iterations out of range: from {ITERATIONS_MIN} to {ITERATIONS_MAX}"
        )
    salt, stored_key, server_key = decode("a SCRAM-SHA-256 hash", _AGAIN, match[2], match[3], match[4])
    if len(stored_key) != KEY_BYTES or len(server_key) != KEY_BYTES or len(salt) < 8:
        raise ConfigError(f"is a SCRAM-SHA-256 hash that was cut short: {_AGAIN}")
    return ScramKeys(iterations, salt, stored_key, server_key)
