"""Users: the names that may log in with a password, and the logins that were right before."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from bisect import bisect
from collections.abc import Iterable, Mapping

from headway.server.config.auth import scram
from headway.server.config.auth.hashes import verify_password

# -- decoys ------------------------------------------------------------------------------------------------------------
#
# Decoys: what a name that cannot log in by SCRAM is answered, so that answers do not tell which names can.
#
# Theory of operation. Users stand on a ring, each at a place that comes from its hash, and so does each name, at one
# that comes from the name. A name that is no user takes after the user that is next on the ring: it has as many
# iterations, and a salt of that length, made of the name and of that user's secret key. So a decoy is the same after a
# restart, and at every broker with these users. As many decoys as users have one number of iterations. A decoy's salt
# changes with its user's password, as the user's own does.


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


# -- users -------------------------------------------------------------------------------------------------------------


class Users:
    """The users that may log in. Safe to use from worker threads.

    :meth:`remembers` recognises an earlier login in a microsecond, so a thousand clients that reconnect at once are no
    problem. It remembers keyed digests that are worth nothing outside this process."""

    def __init__(self, hashes: Mapping[str, str], before: Users | None = None) -> None:
        """``before``: the users before a reload. Logins of those that have the same hash still are remembered."""
        self.hashes = dict(hashes)
        self._key: bytes = secrets.token_bytes(32) if before is None else before._key
        self._seen: dict[str, bytes] = {}
        if before is not None:
            self._seen = {name: seen for name, seen in list(before._seen.items()) if self.same(name, before)}
        self._decoys = Decoys(self.hashes.values())

    def __len__(self) -> int:
        return len(self.hashes)

    def __contains__(self, name: str) -> bool:
        return name in self.hashes

    @property
    def by_scram(self) -> bool:
        """Whether some user can log in by SCRAM."""
        return bool(len(self._decoys))

    def same(self, name: str, other: Users) -> bool:
        """Returns whether a user is there in both, with the same hash."""
        return name in self.hashes and self.hashes[name] == other.hashes.get(name)

    def scram_keys(self, name: str) -> scram.ScramKeys | None:
        """Returns the keys by which a user logs in by SCRAM; None: it cannot."""
        hashed = self.hashes.get(name, "")
        return scram.keys_of(hashed) if hashed.startswith(scram.PREFIX) else None

    def scram_terms(self, name: str) -> tuple[bytes, int]:
        """Returns the salt and the iterations with which a name is answered, whether it is a user or not. Only if some
        user can log in by SCRAM."""
        keys = self.scram_keys(name)
        return self._decoys.terms(name) if keys is None else (keys.salt, keys.iterations)

    def remembers(self, name: str, password: bytes) -> bool:
        """Returns whether this pair was right before. Fast; if False, :meth:`check` has to decide."""
        seen = self._seen.get(name)
        return seen is not None and hmac.compare_digest(seen, self._digest(name, password))

    def check(self, name: str, password: bytes) -> bool:
        """Returns whether the user exists and the password is right. Slow: not for the loop's thread."""
        hashed = self.hashes.get(name)
        right = hashed is not None and verify_password(password, hashed)
        if right:
            self._seen[name] = self._digest(name, password)
        return right

    def _digest(self, name: str, password: bytes) -> bytes:
        return hmac.digest(self._key, name.encode() + b"\0" + password, "sha256")
