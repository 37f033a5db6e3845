"""Logins are checked beside the loop, and guessers are slowed."""

from headway.server.logins.asking import Attempt, Refusal
from headway.server.logins.logins import Logins, PreparedLogins, bad_keys, network_of
from headway.server.logins.scram import MECHANISM as SCRAM
from headway.server.logins.scram import Scram, ScramError

__all__ = [
    "Attempt", "bad_keys", "Logins", "network_of", "PreparedLogins", "Refusal", "SCRAM", "Scram", "ScramError",
]
