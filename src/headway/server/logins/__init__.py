"""Logins are checked beside the loop, and guessers are slowed."""

from headway.server.logins.identity import Attempt, Identity, Refusal
from headway.server.logins.logins import Logins

__all__ = ["Attempt", "Identity", "Logins", "Refusal"]
