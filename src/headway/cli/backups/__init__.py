"""Backups of a journal, and journals made of them: ``headway journal backup`` and ``restore``."""

from headway.cli.backups.command import backup, restore

__all__ = [
    "backup", "restore",
]
