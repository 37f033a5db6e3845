"""Configurations of other systems, read and written as one of Headway's."""

from headway.migration.importing import Import, import_files
from headway.migration.origins import ORIGINS

__all__ = ["Import", "import_files", "ORIGINS"]
