"""Tokens: JSON Web Tokens (RFC 7519) that a client sends as its password.

Rules:
- A token counts only if its signature is by one of the keys, with that key's own algorithm: what the token says of
  algorithms is never followed, so neither ``none`` nor a secret made of a public key gets anywhere.
- ``exp`` must be there and in the future, ``nbf`` in the past; ``iss`` and ``aud`` must be those of the config.
- The token says who it is. The user name that a client gives beside it counts for nothing.
- Tokens are verified, and keys are fetched, in a thread of their own. Keys are fetched again after ``refresh_s``, and
  for a key that is not known, but not more often than every ``AGAIN_S``. Where that fails, the old keys stay.
"""

from __future__ import annotations

import asyncio
import logging
import time
from http.client import HTTPException
from math import inf
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import Request

import jwt
import msgspec
from jwt import InvalidSignatureError, PyJWTError

from headway.core.base import ConfigError
from headway.core.permission import Identity
from headway.server.config import JwtTable
from headway.server.logins.asking import Attempt, Refusal, WaitingThreads, fetch
from headway.store.toml import read_text

# -- jwks --------------------------------------------------------------------------------------------------------------
#
# JWKS (RFC 7517): the public keys by which tokens are verified. Each key has one algorithm, whatever a token says of
# itself; keys of other kinds, and secrets above all, are not used.


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


# -- tokens ------------------------------------------------------------------------------------------------------------


log = logging.getLogger("headway")

KEYS_BYTES_MAX = 1024 * 1024
GROUPS_MAX = 100
NAME_CHARS_MAX = 200
NEVER_S = 1e12
"""A token that ends later than this, in thirty thousand years, ends then. Whole numbers in JSON have no end."""
AGAIN_S = 30.0
"""Least time between two requests for keys."""
TRIED_MAX = 10
"""Keys that are tried for a token that does not say by which it was signed."""
AWAY = Refusal("the keys by which tokens are verified cannot be had: try again later", away=True)
_WORDS: dict[type[PyJWTError], str] = {
    jwt.ExpiredSignatureError: "the token has expired",
    jwt.ImmatureSignatureError: "the token is not valid yet",
    jwt.InvalidAudienceError: "the token is for another audience",
    jwt.InvalidIssuerError: "the token is by another issuer",
    InvalidSignatureError: "the token's signature is wrong",
    jwt.MissingRequiredClaimError: "the token lacks a claim",
}


def keys_of_file(path: Path) -> list[Jwk]:
    """Raises ConfigError if it cannot be used."""
    try:
        return read_jwks(read_text(path))
    except ConfigError as error:
        raise ConfigError(f"auth.jwt.keys_file: {path}: {error}") from None


class Tokens:
    def __init__(self, table: JwtTable, loop: asyncio.AbstractEventLoop) -> None:
        """Raises ConfigError if the file with the keys cannot be used."""
        self.table = table
        self._loop = loop
        self._thread = WaitingThreads(1, "headway-token")
        self._keys: list[Jwk] = []
        self._fetched_s = self._tried_s = -inf
        if table.keys_file is not None:
            self._keys = keys_of_file(table.keys_file)
            self._fetched_s = inf  # until the next reload

    def close(self, *, cancel: bool = True) -> None:
        """Ends the thread; those who wait for an answer get it, unless ``cancel``."""
        self._thread.shutdown(cancel_futures=cancel)

    async def check(self, attempt: Attempt) -> Identity | Refusal:
        """Returns who the token says it is."""
        return await self._loop.run_in_executor(self._thread, self.verify, attempt.password)

    # -- in the thread ------------------------------------------------------------------------------------------------

    def verify(self, token: bytes) -> Identity | Refusal:
        """Returns who the token says it is. Slow if keys have to be fetched: not for the loop's thread."""
        try:
            key_id = jwt.get_unverified_header(token).get("kid")
        except (PyJWTError, ValueError):
            return Refusal("the token cannot be read")
        keys = self._keys_for(key_id)
        if not keys:
            return Refusal("the token was signed with a key that is not known") if self._keys else AWAY
        refusal = Refusal("the token's signature is wrong")
        for one in keys[:TRIED_MAX]:
            try:
                return self._identity(self._claims(token, one))
            except InvalidSignatureError:
                continue
            except PyJWTError as error:
                refusal = Refusal(_WORDS.get(type(error), "the token cannot be used"))
                if not isinstance(error, jwt.InvalidAlgorithmError):
                    break
            except ConfigError as error:
                return Refusal(str(error))
        return refusal

    def _claims(self, token: bytes, one: Jwk) -> dict[str, object]:
        """Returns the claims of a token that this key has signed. Raises PyJWTError."""
        table = self.table
        claims: dict[str, object] = jwt.decode(
            token, one.key, algorithms=[one.algorithm], audience=table.audience, issuer=table.issuer,
            leeway=table.leeway_s, options={
                "require": ["exp", *(["iss"] if table.issuer else []), *(["aud"] if table.audience else [])],
                "verify_aud": table.audience is not None,
            },
        )  # fmt: skip
        return claims

    def _identity(self, claims: dict[str, object]) -> Identity:
        """Returns the identity that claims describe. Raises ConfigError."""
        table = self.table
        name = claims.get(table.user)
        if not isinstance(name, str) or not 0 < len(name) <= NAME_CHARS_MAX or not name.isprintable():
            raise ConfigError(f"the token has no user in its claim {table.user!r}")
        groups = claims.get(table.groups, ()) if table.groups is not None else ()
        if isinstance(groups, str):
            groups = groups.split()
        if not isinstance(groups, list | tuple) or not all(isinstance(group, str) for group in groups):
            raise ConfigError(f"the token's claim {table.groups!r} is no list of groups")
        until_s = claims["exp"]
        if not isinstance(until_s, int | float):
            raise ConfigError("the token's claim 'exp' is no number")
        ends_s = float(min(until_s, NEVER_S)) + table.leeway_s if table.disconnect else None
        return Identity(name, tuple(groups[:GROUPS_MAX]), elsewhere=True, until_s=ends_s)

    def _keys_for(self, key_id: object) -> list[Jwk]:
        """Returns the keys that may have signed a token."""
        now, found = time.monotonic(), self._named(key_id)
        if self.table.keys_url is not None and (not found or now - self._fetched_s > self.table.refresh_s):
            self._fetch(self.table.keys_url, now)
            found = self._named(key_id)
        return found

    def _named(self, key_id: object) -> list[Jwk]:
        algorithms = self.table.algorithms
        return [
            one for one in self._keys if one.algorithm in algorithms and (key_id is None or one.id in (key_id, ""))
        ]

    def _fetch(self, url: str, now: float) -> None:
        """Fetches the keys, if that was not tried just now."""
        if now - self._tried_s < AGAIN_S:
            return
        self._tried_s = now
        try:
            _, text = fetch(Request(url), self.table.timeout_s, KEYS_BYTES_MAX)
            if len(text) > KEYS_BYTES_MAX:
                raise ConfigError("is too large to be a JWKS")
            self._keys, self._fetched_s = read_jwks(text), now
        except (OSError, ValueError, HTTPException, ConfigError) as error:
            log.error("auth.jwt: %s: no keys were fetched, and the old ones stay: %s", url.partition("?")[0], error)
