"""``headway import``."""

from headway.cli.imports.command import import_config

__all__ = ["import_config"]
