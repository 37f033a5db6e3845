"""Hashes of passwords: how the config keeps them, and how they are checked.

Rules:
- A check compares in constant time. Most are slow on purpose: a check must not run on the loop's thread, and only a few
  may run at once (``server/logins/logins.py`` sees to that).
- A hash that would cost too much is refused when the config is read, not when a client logs in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from headway.core.base import ConfigError
from headway.server.config.auth import mosquitto, scram, scrypt

PASSWORD_BYTES_MAX = 65_535
"""The longest password that MQTT can carry."""


class _Kind(NamedTuple):
    read: Callable[[str], object]
    """Raises ConfigError unless the hash is usable."""
    verify: Callable[[bytes, str], bool]


_KINDS = {
    scram.PREFIX: _Kind(scram.keys_of, scram.verify),
    scrypt.PREFIX: _Kind(scrypt.read, scrypt.verify),
    mosquitto.PBKDF2: _Kind(mosquitto.read_pbkdf2, mosquitto.verify_pbkdf2),
    mosquitto.SHA512: _Kind(mosquitto.read_sha512, mosquitto.verify_sha512),
}


def hash_password(password: str | bytes, *, scram_able: bool = False) -> str:
    """Returns a new hash for ``[auth.users]`` or a password file; ``scram_able``: for logins by SCRAM, too."""
    return scram.make(_raw(password)) if scram_able else scrypt.make(_raw(password))


def verify_password(password: str | bytes, hashed: str) -> bool:
    """Returns whether ``hashed`` is of ``password``. ``hashed`` must be one that :func:`check_hash` accepts."""
    raw = _raw(password)
    return len(raw) <= PASSWORD_BYTES_MAX and _kind(hashed).verify(raw, hashed)


def check_hash(hashed: object) -> str:
    """Returns ``hashed`` if it is a usable hash. Errors never show it, because it may be a password."""
    if not isinstance(hashed, str):
        raise ConfigError("expected a password's hash, made by `headway passwd`")
    _kind(hashed).read(hashed)
    return hashed


def _kind(hashed: str) -> _Kind:
    for prefix, kind in _KINDS.items():
        if hashed.startswith(prefix):
            return kind
    raise ConfigError("is not a hash: make one with `headway passwd` (passwords are not kept in plain text)")


def _raw(password: str | bytes) -> bytes:
    return password.encode() if isinstance(password, str) else password
