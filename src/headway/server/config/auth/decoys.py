"""Decoys: what a name that cannot log in by SCRAM is answered, so that answers do not tell which names can.

Theory of operation. Users stand on a ring, each at a place that comes from its hash, and so does each name, at one that
comes from the name. A name that is no user takes after the user that is next on the ring: it has as many iterations,
and a salt of that length, made of the name and of that user's secret key. So a decoy is the same after a restart, and
at every broker with these users. As many decoys as users have one number of iterations. A decoy's salt changes with its
user's password, as the user's own does.
"""

from __future__ import annotations

import hashlib
from bisect import bisect
from collections.abc import Iterable

from headway.server.config.auth import scram


class Decoys:
    def __init__(self, hashes: Iterable[str]) -> None:
        """``hashes``: those of the users, of whatever kind."""
        able = [hashed for hashed in hashes if hashed.startswith(scram.PREFIX)]
        self._ring = sorted((_place(hashed), hashed) for hashed in able)

    def __len__(self) -> int:
        """Returns the number of users who can log in by SCRAM."""
        return len(self._ring)

    def terms(self, name: str) -> tuple[bytes, int]:
        """Returns a salt and a number of iterations for a name that is no user. Only if there are users."""
        _, hashed = self._ring[bisect(self._ring, (_place(name), "")) % len(self._ring)]
        keys = scram.keys_of(hashed)
        secret = hashlib.shake_256(keys.server_key + name.encode())
        return secret.digest(len(keys.salt)), keys.iterations


def _place(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:8]
