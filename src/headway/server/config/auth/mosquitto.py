"""The hashes that ``mosquitto_passwd`` makes.

- ``$7$ITERATIONS$SALT$HASH``: PBKDF2 with HMAC-SHA-512;
- ``$6$SALT$HASH``, of mosquitto 1.6 and before: SHA-512 of the password and the salt. It is checked in a microsecond,
  so who gets hold of the file guesses fast.
"""

from __future__ import annotations

import hashlib
import hmac
import re

from headway.core.base import ConfigError
from headway.server.config.auth.base64 import decode

PBKDF2, SHA512 = "$7$", "$6$"
ITERATIONS_MAX = 1_000_000
"""About a second."""
HASH_BYTES = 64
_PBKDF2 = re.compile(r"\$7\$(\d{1,10})\$([A-Za-z0-9+/]+=*)\$([A-Za-z0-9+/]+=*)", re.ASCII)
_SHA512 = re.compile(r"\$6\$([A-Za-z0-9+/]+=*)\$([A-Za-z0-9+/]+=*)", re.ASCII)
_AGAIN = "make a new one with mosquitto_passwd"


def verify_pbkdf2(password: bytes, hashed: str) -> bool:
    """Returns whether a ``$7$`` hash is of ``password``."""
    iterations, salt, digest = read_pbkdf2(hashed)
    return hmac.compare_digest(hashlib.pbkdf2_hmac("sha512", password, salt, iterations, HASH_BYTES), digest)


def verify_sha512(password: bytes, hashed: str) -> bool:
    """Returns whether a ``$6$`` hash is of ``password``."""
    salt, digest = read_sha512(hashed)
    return hmac.compare_digest(hashlib.sha512(password + salt).digest(), digest)


def read_pbkdf2(hashed: str) -> tuple[int, bytes, bytes]:
    """Returns the iterations, the salt and the digest of a ``$7$`` hash. Raises ConfigError."""
    match = _PBKDF2.fullmatch(hashed)
    if match is None:
        raise ConfigError(f"is not a whole $7$ hash of mosquitto: {_AGAIN}")
    iterations = int(match[1])
    if not 1 <= iterations <= ITERATIONS_MAX:
        raise ConfigError(f"is a $7$ hash with iterations out of range: from 1 to {ITERATIONS_MAX}")
    return iterations, *_parts(match[2], match[3])


def read_sha512(hashed: str) -> tuple[bytes, bytes]:
    """Returns the salt and the digest of a ``$6$`` hash. Raises ConfigError."""
    match = _SHA512.fullmatch(hashed)
    if match is None:
        raise ConfigError(f"is not a whole $6$ hash of mosquitto: {_AGAIN}")
    return _parts(match[1], match[2])


def _parts(salt: str, digest: str) -> tuple[bytes, bytes]:
    raw_salt, raw_digest = decode("a hash of mosquitto", _AGAIN, salt, digest)
    if len(raw_digest) != HASH_BYTES:
        raise ConfigError(f"is a hash of mosquitto that was cut short: {_AGAIN}")
    return raw_salt, raw_digest
