"""The command line: `headway serve | check | top | why | passwd`. Thin: it reads, asks, and prints."""

from __future__ import annotations

import codecs
import sys

ASCII = {"·": "-", "–": "-", "█": "#", "░": ".", "▼": "v", "▲": "^", "…": "~"}
"""Substitutes of the same width for a terminal that cannot show our own characters; others become ``?``."""


def main() -> None:
    """Runs the console script. Commands import Spark, the offline tools and the server when they are run."""
    from headway.cli.app import app
    from headway.cli.shell import answer_shells

    codecs.register_error("headway", _shown_in_ascii)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="headway")
    answer_shells()
    app()


def _shown_in_ascii(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return "".join(ASCII.get(char, "?") for char in text), error.end
