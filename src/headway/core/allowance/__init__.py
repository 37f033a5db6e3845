"""Limits per user: what all clients of one user may take up together. It knows no protocol and does no I/O."""

from headway.core.allowance.allowance import UNLIMITED, Allowance
from headway.core.allowance.allowances import Allowances
from headway.core.allowance.holdings import Holdings
from headway.core.allowance.in_flight_bytes import NOT_COUNTED, InFlightBytes
from headway.core.allowance.user_limits import UserLimits

__all__ = ["Allowance", "Allowances", "Holdings", "InFlightBytes", "NOT_COUNTED", "UNLIMITED", "UserLimits"]
