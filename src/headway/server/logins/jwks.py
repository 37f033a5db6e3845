"""JWKS (RFC 7517): the public keys by which tokens are verified. Each key has one algorithm, whatever a token says of
itself; keys of other kinds, and secrets above all, are not used."""

from __future__ import annotations

from typing import Any, NamedTuple

import jwt
import msgspec
from jwt.exceptions import PyJWTError

from headway.core.base import ConfigError

KEYS_MAX = 100
_ALGORITHMS = {("RSA", ""): "RS256", ("EC", "P-256"): "ES256", ("OKP", "Ed25519"): "EdDSA"}


class Jwk(NamedTuple):
    id: str
    """Empty: it has none."""
    algorithm: str
    key: Any


def read_jwks(text: str | bytes) -> list[Jwk]:
    """Returns the keys that can be used. Raises ConfigError if there is none."""
    try:
        found = msgspec.json.decode(text)
        entries = found["keys"]
        if not isinstance(entries, list):
            raise TypeError
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError, IndexError):
        raise ConfigError('is not a JWKS: JSON such as {"keys": [...]}') from None
    keys = [key for entry in entries[:KEYS_MAX] if (key := _key(entry)) is not None]
    if not keys:
        raise ConfigError("has no key that can be used: RSA (RS256), EC with P-256 (ES256), or Ed25519 (EdDSA)")
    return keys


def _key(entry: Any) -> Jwk | None:
    """Returns a key; None: it is of another kind, or for something else."""
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        return None
    algorithm = _ALGORITHMS.get((str(entry.get("kty")), str(entry.get("crv", ""))))
    if algorithm is None or entry.get("alg", algorithm) != algorithm:
        return None
    public = {name: value for name, value in entry.items() if name not in ("d", "p", "q", "dp", "dq", "qi", "oth")}
    try:
        key = jwt.PyJWK.from_dict(public, algorithm=algorithm).key
    except (PyJWTError, ValueError, TypeError):
        return None
    return Jwk(str(entry.get("kid", "")), algorithm, key)
