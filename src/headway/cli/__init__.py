"""The command line: `headway serve | check | top | why | passwd`. Thin: it reads, asks, and prints."""

from __future__ import annotations


def main() -> None:
    """The console script. What a command needs is imported when it is run."""
    from headway.cli.app import app

    app()
