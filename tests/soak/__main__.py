"""What takes too long for ``make test``: ``python -m tests.soak``, or with names of parts only those.

A part is a module here with a ``PART`` (part.py) that ``PARTS`` names. At the end there is one table of what was held.
"""

from __future__ import annotations

import argparse
import sys
import time

from rich.console import Console
from rich.table import Table
from tests.soak import atomic, canaries, hostile, packages, seeds
from tests.soak.part import Part, Row

PARTS: dict[str, Part] = {
    part.name: part for part in (canaries.PART, hostile.PART, seeds.PART, atomic.PART, packages.PART)
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description="The tests that take long.")
    listed = "; ".join(f"{part.name}: {part.about}" for part in PARTS.values())
    parser.add_argument("parts", nargs="*", metavar="PART", help=listed)
    chosen = parser.parse_args().parts or list(PARTS)
    if unknown := set(chosen) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    console = Console()
    table = Table("part", "what", "found", "wanted", "held", "seconds")
    failed = 0
    for name in chosen:
        began = time.monotonic()
        rows = list(PARTS[name].run(lambda text: console.print(text, markup=False, highlight=False)))
        seconds = f"{time.monotonic() - began:.0f}"
        for row in rows or [Row("nothing was looked at", "", "something", False)]:
            failed += not row.held
            table.add_row(name, row.what, row.found, row.wanted, "yes" if row.held else "NO", seconds)
            seconds = ""
    console.print(table)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
