"""Permissions: who may do what, decided by filters. It knows no protocol and does no I/O."""

from headway.core.permission.denials import Denial, Denials
from headway.core.permission.grants import FilterSet, Grants, fill
from headway.core.permission.identity import NOBODY, Identity
from headway.core.permission.permissions import NO_PERMISSIONS, Permissions
from headway.core.permission.rights import ALL_RIGHTS, Rights
from headway.core.permission.rule import EXCHANGES, QUEUES, Operation, Permission

__all__ = [
    "ALL_RIGHTS", "Denial", "Denials", "EXCHANGES", "fill", "FilterSet", "Grants", "Identity", "NO_PERMISSIONS",
    "NOBODY", "Operation", "Permission", "Permissions", "QUEUES", "Rights",
]
