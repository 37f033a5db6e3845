"""docs/CLI.md, made of what `--help` says of each command, by the walk that the man page is made by.

    python -m tests.docs.reference            prints the page
    python -m tests.docs.reference --write    writes it
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import typer
from typer.main import get_command

from headway.cli.app import app
from headway.cli.shell import PROGRAM, Entry, entries, paragraphs, verbatim

PAGE = Path(__file__).parents[2] / "docs" / "CLI.md"
HEAD = """# The command line

Made of what `--help` says of each command, as the man page is (`headway man`). How to run the broker and look at it:
[operations](OPERATIONS.md).
"""


def cli_page() -> str:
    """Returns the page as it should be."""
    command = get_command(app)
    context = typer.Context(command, info_name=PROGRAM)
    found = list(entries(command, context))
    lines = [HEAD]
    lines += _body(paragraphs(command.help)[1:])
    links = (f"[{entry.path.removeprefix(PROGRAM + ' ')}](#{entry.path.replace(' ', '-')})" for entry in found)
    lines += ["Commands: " + " · ".join(links), ""]
    for entry in found:
        lines += _section(entry)
    return "\n".join(lines).rstrip("\n") + "\n"


def _section(entry: Entry) -> Iterator[str]:
    yield from (f"## {entry.path}", "")
    words = [word for word in entry.usage if word != "[OPTIONS]"]
    if words:
        yield from (f"`{' '.join([entry.path, *words])}`", "")
    yield from _body(entry.paragraphs)
    if entry.options:
        yield from ("| Option | Meaning |", "|---|---|")
        yield from (f"| `{_cell(names)}` | {_cell(_prose(meaning))} |" for names, meaning in entry.options)
        yield ""


def _body(parts: list[str]) -> Iterator[str]:
    for part in parts:
        kept = verbatim(part)
        if kept is not None:
            yield from ("```", *kept, "```", "")
        else:
            yield from (_prose(re.sub(r"\s+", " ", part.strip())), "")


def _prose(text: str) -> str:
    """Escapes what Markdown would read as its own, but for code in backticks."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"(\*|<(?=[a-zA-Z/!]))", r"\\\1", part) for part in parts)


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().replace("|", "\\|")


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(cli_page(), encoding="utf-8")
    else:
        print(cli_page(), end="")
