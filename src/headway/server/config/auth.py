"""Passwords and tokens: how the config keeps them, and how they are checked.

Rules:
- The config has only scrypt hashes, written ``$scrypt$ln=15,r=8,p=1$SALT$HASH`` (PHC strings, base64 without padding).
- A check compares in constant time. It costs some 50 ms and 32 MB on purpose. It must not run on the loop's thread, and
  only a few may run at once (``logins.py`` sees to that). :meth:`Users.remembers` recognises an earlier login in a
  microsecond, so a thousand clients that reconnect at once are no problem. It remembers keyed digests that are worth
  nothing outside this process.
- A token is generated here and has so many random bits that its hash need not be slow: the config has ``$sha256$HASH``.
- A hash that would cost more than ``WORK_MAX`` is refused when the config is read, not when a client logs in.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping

from headway.core.base import ConfigError

LOG_N, BLOCK, PARALLEL = 15, 8, 1
SALT_BYTES = 16
HASH_BYTES = 32
WORK_MAX = 512 * 1024 * 1024
"""Bytes that a check may process: sixteen times as many as for hashes made here, about a second."""
PASSWORD_BYTES_MAX = 65_535
"""The longest password that MQTT can carry."""

TOKEN_BYTES = 32
_SHA256 = "$sha256$"
_TOKEN = re.compile(r"\$sha256\$[A-Za-z0-9+/]{43}", re.ASCII)
_PHC = re.compile(r"\$scrypt\$ln=(\d{1,2}),r=(\d{1,3}),p=(\d{1,2})\$([A-Za-z0-9+/]+)\$([A-Za-z0-9+/]+)", re.ASCII)


def hash_password(password: str | bytes) -> str:
    """Returns a new hash for the config's ``[auth.users]``."""
    salt = secrets.token_bytes(SALT_BYTES)
    digest = _scrypt(_raw(password), salt, LOG_N, BLOCK, PARALLEL, HASH_BYTES)
    return f"$scrypt$ln={LOG_N},r={BLOCK},p={PARALLEL}${_encode(salt)}${_encode(digest)}"


def verify_password(password: str | bytes, hashed: str) -> bool:
    """Returns whether ``hashed`` is of ``password``. ``hashed`` must be one that :func:`check_hash` accepts."""
    log_n, block, parallel, salt, digest = _take_apart(hashed)
    raw = _raw(password)
    if len(raw) > PASSWORD_BYTES_MAX:
        return False
    return hmac.compare_digest(_scrypt(raw, salt, log_n, block, parallel, len(digest)), digest)


def check_hash(hashed: object) -> str:
    """Returns ``hashed`` if it is a usable hash. Errors never show it, because it may be a password."""
    if not isinstance(hashed, str):
        raise ConfigError("expected a password's hash, made by `headway passwd`")
    _take_apart(hashed)
    return hashed


def new_token() -> tuple[str, str]:
    """Returns a new token, and its digest for the config's ``[auth.tokens]``."""
    token = secrets.token_urlsafe(TOKEN_BYTES)
    return token, digest_of(token)


def digest_of(token: str) -> str:
    """Returns the digest of a token that a client sent; it may be any bytes."""
    raw = token.encode(errors="surrogateescape")
    return f"{_SHA256}{_encode(hashlib.sha256(raw).digest())}"


def check_digest(digest: object) -> str:
    """Returns ``digest`` if it can be a token's. Errors never show it, because it may be the token."""
    if not isinstance(digest, str) or not _TOKEN.fullmatch(digest):
        raise ConfigError("is not a token's digest: make one with `headway passwd --token NAME`")
    return digest


class Users:
    """The users that may log in. Safe to use from worker threads."""

    def __init__(self, hashes: Mapping[str, str]) -> None:
        self._hashes = dict(hashes)
        self._key = secrets.token_bytes(32)
        self._seen: dict[str, bytes] = {}

    def __len__(self) -> int:
        return len(self._hashes)

    def __contains__(self, name: str) -> bool:
        return name in self._hashes

    def remembers(self, name: str, password: bytes) -> bool:
        """Returns whether this pair was right before. Fast; if False, :meth:`check` has to decide."""
        seen = self._seen.get(name)
        return seen is not None and hmac.compare_digest(seen, self._digest(name, password))

    def check(self, name: str, password: bytes) -> bool:
        """Returns whether the user exists and the password is right. Slow: not for the loop's thread."""
        hashed = self._hashes.get(name)
        right = hashed is not None and verify_password(password, hashed)
        if right:
            self._seen[name] = self._digest(name, password)
        return right

    def _digest(self, name: str, password: bytes) -> bytes:
        return hmac.digest(self._key, name.encode() + b"\0" + password, "sha256")


def _take_apart(hashed: str) -> tuple[int, int, int, bytes, bytes]:
    match = _PHC.fullmatch(hashed)
    if match is None:
        raise ConfigError("is not a scrypt hash: make one with `headway passwd` (passwords are not kept in plain text)")
    log_n, block, parallel = int(match[1]), int(match[2]), int(match[3])
    if not 10 <= log_n <= 24 or not block or not parallel:
        raise ConfigError("is a scrypt hash with costs out of range: ln from 10 to 24, r and p at least 1")
    if (128 * block * parallel) << log_n > WORK_MAX:
        raise ConfigError("is a scrypt hash that takes too long to check: make a cheaper one with `headway passwd`")
    try:
        salt, digest = _decode(match[4]), _decode(match[5])
    except binascii.Error:
        raise ConfigError("is a scrypt hash with damaged base64: make a new one with `headway passwd`") from None
    if len(salt) < 8 or not 16 <= len(digest) <= 64:
        raise ConfigError("is a scrypt hash that was cut short: make a new one with `headway passwd`")
    return log_n, block, parallel, salt, digest


def _scrypt(password: bytes, salt: bytes, log_n: int, block: int, parallel: int, size: int) -> bytes:
    return hashlib.scrypt(
        password, salt=salt, n=1 << log_n, r=block, p=parallel, dklen=size,
        maxmem=128 * block * ((1 << log_n) + parallel + 2) + (1 << 20),
    )  # fmt: skip


def _raw(password: str | bytes) -> bytes:
    return password.encode() if isinstance(password, str) else password


def _encode(raw: bytes) -> str:
    return base64.b64encode(raw).decode().rstrip("=")


def _decode(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
