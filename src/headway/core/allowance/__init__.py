"""Limits per user: what all clients of one user may take up together. It knows no protocol and does no I/O."""

from headway.core.allowance.allowance import Allowance
from headway.core.allowance.allowances import Allowances
from headway.core.allowance.user_limits import UserLimits

__all__ = ["Allowance", "Allowances", "UserLimits"]
