"""docs/SPARK.md, for tests that hold it against what the source says."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "SPARK.md").read_text()
_TEXTS = (r"http://[\w.:/]+", "URL"), (r"spark-\w+", "CURSOR"), (r"\w+/[\w#]+", "TOPIC"), (r"\d+(\.\d+)?", "NUMBER")


def is_in_the_page(line: str) -> bool:
    """But for its numbers and names."""
    return any(_plain(line) == _plain(shown) for shown in re.findall(r"`([^`\n]+)`", PAGE))


def rows(heading: str) -> dict[str, str]:
    """The first table below a heading: the second column by the first, without backticks."""
    table = PAGE.split(f"\n{heading}\n")[1].partition("\n|")[2].partition("\n\n")[0]
    cells = ([cell.strip().replace("`", "") for cell in line.strip("|").split("|")] for line in table.splitlines()[2:])
    return {first: second for first, second, *_ in cells}


def _plain(line: str) -> str:
    for pattern, name in _TEXTS:
        line = re.sub(pattern, name, line)
    return line
