"""Doubtful places of a valid config: rules that never apply, folders that cannot be written to."""

from headway.server.config.linting import writable
from headway.server.config.linting.linter import lint, uncovered_finding

__all__ = ["lint", "uncovered_finding", "writable"]
