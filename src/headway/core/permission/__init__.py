"""Permissions: who may do what, decided by filters. It knows no protocol and does no I/O."""

from headway.core.permission.all_rights import ALL_RIGHTS
from headway.core.permission.denials import Denial, Denials
from headway.core.permission.grants import FilterSet, Grants, fill
from headway.core.permission.identity import NOBODY, Identity
from headway.core.permission.permissions import Permissions
from headway.core.permission.rights import Rights
from headway.core.permission.rule import EXCHANGES, QUEUES, Operation, Permission

__all__ = [
    "ALL_RIGHTS", "Denial", "Denials", "EXCHANGES", "fill", "FilterSet", "Grants", "Identity", "NOBODY", "Operation",
    "Permission", "Permissions", "QUEUES", "Rights",
]
