"""scrypt: the hashes that ``headway passwd`` makes, ``$scrypt$ln=15,r=8,p=1$SALT$HASH`` (PHC strings, base64 without
padding). A check costs some 50 ms and 32 MB on purpose."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets

from headway.core.base import ConfigError
from headway.server.config.auth.base64 import decode, encode

PREFIX = "$scrypt$"
LOG_N, BLOCK, PARALLEL = 15, 8, 1
SALT_BYTES = 16
HASH_BYTES = 32
WORK_MAX = 512 * 1024 * 1024
"""Bytes that a check may process: sixteen times as many as for hashes made here, about a second."""
_AGAIN = "make a new one with `headway passwd`"
_PHC = re.compile(r"\$scrypt\$ln=(\d{1,2}),r=(\d{1,3}),p=(\d{1,2})\$([A-Za-z0-9+/]+)\$([A-Za-z0-9+/]+)", re.ASCII)


def make(password: bytes) -> str:
    """Returns a new hash."""
    salt = secrets.token_bytes(SALT_BYTES)
    digest = _scrypt(password, salt, LOG_N, BLOCK, PARALLEL, HASH_BYTES)
    return f"{PREFIX}ln={LOG_N},r={BLOCK},p={PARALLEL}${encode(salt)}${encode(digest)}"


def verify(password: bytes, hashed: str) -> bool:
    """Returns whether ``hashed`` is of ``password``."""
    log_n, block, parallel, salt, digest = read(hashed)
    return hmac.compare_digest(_scrypt(password, salt, log_n, block, parallel, len(digest)), digest)


def read(hashed: str) -> tuple[int, int, int, bytes, bytes]:
    """Returns the costs, the salt and the digest of a hash. Raises ConfigError."""
    match = _PHC.fullmatch(hashed)
    if match is None:
        raise ConfigError("is not a scrypt hash: make one with `headway passwd`")
    log_n, block, parallel = int(match[1]), int(match[2]), int(match[3])
    if not 10 <= log_n <= 24 or not block or not parallel:
        raise ConfigError("is a scrypt hash with costs out of range: ln from 10 to 24, r and p at least 1")
    if log_n >= 16 * block:  # RFC 7914, 2: N is less than 2 to the power of 128 * r / 8
        raise ConfigError("is a scrypt hash with costs that scrypt does not have: with r=1, ln is less than 16")
    if (128 * block * parallel) << log_n > WORK_MAX:
        raise ConfigError("is a scrypt hash that takes too long to check: make a cheaper one with `headway passwd`")
    salt, digest = decode("a scrypt hash", _AGAIN, match[4], match[5])
    if len(salt) < 8 or not 16 <= len(digest) <= 64:
        raise ConfigError(f"is a scrypt hash that was cut short: {_AGAIN}")
    return log_n, block, parallel, salt, digest


def _scrypt(password: bytes, salt: bytes, log_n: int, block: int, parallel: int, size: int) -> bytes:
    return hashlib.scrypt(
        password, salt=salt, n=1 << log_n, r=block, p=parallel, dklen=size,
        maxmem=128 * block * ((1 << log_n) + parallel + 2) + (1 << 20),
    )  # fmt: skip
