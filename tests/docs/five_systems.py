"""The statements of the five systems in docs/five-systems.toml, and the tables of docs/POLICIES.md made of them.

    python -m tests.docs.five_systems     puts the tables into the page
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "POLICIES.md"
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


def with_tables(page: str) -> str:
    """Returns the page with the tables that the statements make, each between its marks. A row names its first test."""
    for system, statements in SYSTEMS.items():
        rows = ["| | Row | The document says | Here | Test |", "|---|---|---|---|---|"]
        for one in statements:
            here = one["here"] if one["state"] == "has" else f"*{one['state'].capitalize()}.* {one['here']}"
            test = one["tests"][0].partition("::")[2]
            rows.append(f"| {one['number']} | {one['row']} | {one['says']} | {here} | `{test}` |")
        page = _between(page, system, rows)
    counts = {system: Counter(one["state"] for one in statements) for system, statements in SYSTEMS.items()}
    counts["All"] = sum(counts.values(), Counter())
    rows = [f"| | Statements | {' | '.join(state.capitalize() for state in STATES)} |", "|---" * 6 + "|"]
    for system, states in counts.items():
        rows.append(f"| {system} | {states.total()} | {' | '.join(str(states[state]) for state in STATES)} |")
    return _between(page, "Counts", rows)


def _between(page: str, mark: str, rows: list[str]) -> str:
    start, end = f"<!-- {mark} -->\n", f"\n<!-- /{mark} -->"
    before, _, rest = page.partition(start)
    _, found, after = rest.partition(end)
    assert found, f"{PAGE.name} has no marks {start.strip()} and {end.strip()}"
    return before + start + "\n" + "\n".join(rows) + "\n" + end + after


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
