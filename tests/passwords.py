"""Passwords of tests that are about something else: hashes as `headway passwd` makes them, with the least work that the
broker accepts. A check takes 2 ms where it takes 50 on purpose; tests of hashes and of many logins have real ones."""

from __future__ import annotations

import hashlib
import secrets
from base64 import b64encode

from headway.server.config.auth import scram

LOG_N = 10


def cheap_hash(password: str, *, scram_able: bool = False) -> str:
    raw, salt = password.encode(), secrets.token_bytes(16)
    if scram_able:
        return scram.text_of(scram.keys_for(raw, salt, scram.ITERATIONS_MIN))
    digest = hashlib.scrypt(raw, salt=salt, n=1 << LOG_N, r=8, p=1, dklen=32)
    told = (b64encode(part).decode().rstrip("=") for part in (salt, digest))
    return f"$scrypt$ln={LOG_N},r=8,p=1${'$'.join(told)}"
