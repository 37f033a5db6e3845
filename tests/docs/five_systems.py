"""The statements of the five systems in docs/five-systems.toml, and the tables made of them: a page of
docs/five-systems for each system, and their counts in docs/FIVE_SYSTEMS.md.

    python -m tests.docs.five_systems     puts the tables into the pages
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "five-systems"
PAGES = {
    "XAP": FOLDER / "XAP.md", "AMPS": FOLDER / "AMPS.md", "ActiveMQ": FOLDER / "ACTIVEMQ.md",
    "JBoss A-MQ": FOLDER / "A-MQ.md", "Qpid": FOLDER / "QPID.md", "Counts": ROOT / "docs" / "FIVE_SYSTEMS.md",
}  # fmt: skip
STATES = ("has", "partly", "otherwise", "does not apply")
SYSTEMS: dict[str, list[dict[str, Any]]] = tomllib.loads((ROOT / "docs" / "five-systems.toml").read_text())


def mistakes(systems: dict[str, list[dict[str, Any]]]) -> Iterator[str]:
    """Yields what is wrong with statements: numbers with holes, unknown states, no test, tests that are not there."""
    numbers = [one["number"] for statements in systems.values() for one in statements]
    if numbers != list(range(1, len(numbers) + 1)):
        yield "the numbers do not count from 1 up"
    for one in (one for statements in systems.values() for one in statements):
        if set(one) != {"number", "row", "says", "here", "state", "tests"} or one["state"] not in STATES:
            yield f"{one['number']}: it has number, row, says, here, state ({', '.join(STATES)}) and tests"
        if not one.get("tests"):
            yield f"{one['number']}: names no test that shows it"
        for name in one.get("tests", ()):
            file, _, function = name.partition("::")
            path = ROOT / "tests" / file
            if not path.is_file() or not re.search(rf"^(async )?def {function}\(", path.read_text(), re.MULTILINE):
                yield f"{one['number']}: there is no test {name}"


def tables() -> Iterator[tuple[str, list[str]]]:
    """Yields the mark and the lines of each table that the statements make. A row names its first test."""
    for system, statements in SYSTEMS.items():
        rows = ["| | Row | The document says | Here | Test |", "|---|---|---|---|---|"]
        for one in statements:
            here = one["here"] if one["state"] == "has" else f"*{one['state'].capitalize()}.* {one['here']}"
            test = one["tests"][0].partition("::")[2]
            rows.append(f"| {one['number']} | {one['row']} | {one['says']} | {here} | `{test}` |")
        yield system, rows
    counts = {system: Counter(one["state"] for one in statements) for system, statements in SYSTEMS.items()}
    counts["All"] = sum(counts.values(), Counter())
    rows = [f"| | Statements | {' | '.join(state.capitalize() for state in STATES)} |", "|---" * 6 + "|"]
    for system, states in counts.items():
        rows.append(f"| {system} | {states.total()} | {' | '.join(str(states[state]) for state in STATES)} |")
    yield "Counts", rows


def between(page: str, mark: str, rows: list[str]) -> str:
    """Returns the page with these lines between its marks."""
    start, end = f"<!-- {mark} -->\n", f"\n<!-- /{mark} -->"
    before, _, rest = page.partition(start)
    _, found, after = rest.partition(end)
    assert found, f"the page has no marks {start.strip()} and {end.strip()}"
    return before + start + "\n" + "\n".join(rows) + "\n" + end + after


if __name__ == "__main__":
    for mark, rows in tables():
        PAGES[mark].write_text(between(PAGES[mark].read_text(), mark, rows))
