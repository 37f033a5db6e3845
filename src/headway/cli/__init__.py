"""The command line: `headway serve | check | top | why | passwd`. Thin: it reads, asks, and prints."""

from __future__ import annotations


def main() -> None:
    """Runs the console script. Commands import Spark, the offline tools and the server when they are run."""
    from headway.cli.app import app
    from headway.cli.shell.completion import answer_shells

    answer_shells()
    app()
