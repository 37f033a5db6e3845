"""docs/CLI.md, made of what `--help` says of each command, by the walk that the man page is made by; and the tables of
docs/CONFIG.md, made of the config's models and of the sentences below their fields.

    python -m tests.docs.reference     writes both

The first paragraph below a field is its sentence. A paragraph that begins with Default: has what no value can say.
A reference such as docs/STATE.md#deletes becomes a link. Other paragraphs are for those who read the source.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from tests.docs.five_systems import between
from typer.main import get_command

from headway.cli.app import app
from headway.cli.shell import PROGRAM, Entry, entries, paragraphs, verbatim
from headway.core.base import format_count, format_duration, format_size
from headway.core.message import KeyExtractor
from headway.server.config.auth.tables import AuthTable, HookTable, JwtTable, LimitTable, PermissionTable
from headway.server.config.fields import Keep, Table
from headway.server.config.settings import (
    FlapTable,
    HistoryTable,
    JournalTable,
    ListenerTable,
    PoolTable,
    RetainedTable,
    ServerTable,
    SourceTable,
    TelemetryTable,
    TopicTable,
    TracesTable,
    ViewTable,
)
from headway.server.config.tls import TlsTable

DOCS = Path(__file__).parents[2] / "docs"
CLI, CONFIG = DOCS / "CLI.md", DOCS / "CONFIG.md"

# -- the command line --------------------------------------------------------------------------------------------------


HEAD = """# The command line

Made of what `--help` says of each command, as the man page is (`headway man`). How to run the broker and look at it:
[operations](OPERATIONS.md).
"""


def cli_page() -> str:
    """Returns docs/CLI.md as it should be."""
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
    return "".join(
        part if part.startswith("`") else re.sub(r"(\*|<(?=[a-zA-Z/!]))", r"\\\1", part) for part in parts
    )


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().replace("|", "\\|")


# -- the config --------------------------------------------------------------------------------------------------------


SECTIONS: dict[str, type[Table]] = {
    "server": ServerTable, "listeners.NAME": ListenerTable, "listeners.NAME.tls": TlsTable, "auth": AuthTable,
    "auth.hook": HookTable, "auth.jwt": JwtTable, "permission": PermissionTable, "limit": LimitTable,
    "pool": PoolTable, "flap": FlapTable, "retained": RetainedTable, "telemetry": TelemetryTable,
    "traces": TracesTable, "journal": JournalTable, "history": HistoryTable, "topic": TopicTable,
    "views.NAME": ViewTable, "tables.NAME": SourceTable,
}  # fmt: skip
WORDS = {
    "bool": "`true`, `false`", "Name": "name", "Identifier": "name", "Column": "column", "Text": "text",
    "Path_": "path", "Share": "share", "Memory": "size or share", "Filter": "topic filter", "Topic": "topic",
    "Key": "key", "Order": "order", "Hash": "hash", "Digest": "hash", "Fsync": '`"always"`, `"off"`, 1 ms to 1 s',
    "Keep_": "time, size, or a list of both", "TopicPool_": "size or table", "Network_": "network",
    "WebPath": "path of a URL", "Origin": "origin", "PageOrigin": "origin", "HookUrl": "URL", "CollectorUrl": "URL",
    "ListenerUrl": "URL", "AdminUrl": "URL or `false`", "HeaderName": "name", "HeaderValue": "text",
}  # fmt: skip
"""Kinds of values in the config, in words."""
FORMS = {"count": format_count, "size": format_size, "duration": format_duration}
ENDLESS = {"size": 1 << 40}
"""Bounds that nobody reaches, by kind."""


def config_page(page: str) -> str:
    """Returns docs/CONFIG.md with its tables as they should be."""
    for section, table in SECTIONS.items():
        rows = ["| Key | Default | Values | Meaning |", "|---|---|---|---|"]
        page = between(page, section, rows + list(_keys(table)))
    return page


def _keys(table: type[Table]) -> Iterator[str]:
    written = {}
    for one in reversed(table.__mro__):
        if issubclass(one, Table) and one is not Table:
            written |= _fields(one)
    for name, field in table.model_fields.items():
        annotation, said = written[name]
        assert said, f"{table.__name__}.{name} has no sentence below it"
        meaning, *more = re.split(r"\n\s*\n", said)
        default = next((part.strip().removeprefix("Default: ") for part in more if "Default: " in part), None)
        values = _values(annotation, vars(sys.modules[table.__module__]))
        if default is None:
            own = field.get_default(call_default_factory=True)
            default = "required" if field.is_required() else _shown(own, values)
        cells = (_linked(default), values, _linked(meaning))
        yield f"| `{field.alias or name}` | {' | '.join(_cell(cell).removesuffix('.') for cell in cells)} |"


def _fields(table: type[Table]) -> dict[str, tuple[ast.expr, str]]:
    """Returns the annotation of each field of a class, and the text below it."""
    source = Path(str(sys.modules[table.__module__].__file__)).read_text(encoding="utf-8")
    classes = [one for one in ast.parse(source).body if isinstance(one, ast.ClassDef)]
    body = next(one.body for one in classes if one.name == table.__name__)
    found = {}
    for node, below in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            text = below.value.value if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) else ""
            found[node.target.id] = (node.annotation, str(text))
    return found


def _values(node: ast.expr, names: dict[str, Any]) -> str:
    """Returns the values that an annotation allows, in words."""
    if isinstance(node, ast.BinOp):  # ... | None
        return _values(node.left, names)
    if isinstance(node, ast.Name):
        return WORDS.get(node.id) or "table"
    assert isinstance(node, ast.Subscript)
    assert isinstance(node.value, ast.Name)
    inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if node.value.id == "Annotated":
        return _bounds(inner[1], names)
    return f"{'list' if node.value.id == 'list' else 'table'} of {_plural(_values(inner[-1], names))}"


def _plural(word: str) -> str:
    if word.startswith("`"):
        return word
    if word.startswith("list "):
        return word.replace("list", "lists", 1)
    return f"{word}es" if word.endswith("sh") else f"{word}s"


def _bounds(call: ast.expr, names: dict[str, Any]) -> str:
    assert isinstance(call, ast.Call)
    assert isinstance(call.func, ast.Name)
    kind = call.func.id
    arguments = eval(f"({', '.join(ast.unparse(one) for one in call.args)},)", names)
    if kind == "one_of":
        return ", ".join(f'`"{word}"`' for word in arguments)
    low, high = arguments
    if high >= ENDLESS.get(kind, high + 1):
        return f"{FORMS[kind](low)} or more"
    return f"{FORMS[kind](low)} to {FORMS[kind](high)}"


def _shown(value: object, values: str) -> str:
    """Returns a default as people would write it."""
    if value is None or value in ([], {}):
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, KeyExtractor):
        value = value.text
    if isinstance(value, list):
        return f"`[{', '.join(_shown(one, values).strip('`') for one in value)}]`"
    if isinstance(value, Keep):
        value = _time(value.seconds or 0)
    elif isinstance(value, int | float):
        if values == "share":
            value = f"{value:.0%}"
        elif isinstance(value, float):
            value = _time(value)
        elif re.search(r"\b([kMGT]?B)\b", values):
            value = _size(value)
        else:
            return f"`{value:_}`"
    return f'`"{value}"`'


def _time(seconds: float) -> str:
    for unit, scale in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= scale and seconds % scale == 0:
            return f"{seconds / scale:.0f}{unit}"
    return f"{seconds:.0f}s" if seconds == int(seconds) else f"{seconds * 1000:.0f}ms"


def _size(number: int) -> str:
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 1000), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number >= scale and number % scale == 0:
            return f"{number // scale}{unit}"
    return f"{number}B"


def _linked(text: str) -> str:
    """Returns a sentence with its references as links, and code in single backticks."""

    def link(found: re.Match[str]) -> str:
        page, _, anchor = found[1].partition("#")
        if page == CONFIG.name:
            return f"[{anchor.replace('-', ' ')}](#{anchor})"
        return f"[{page}]({found[1]})"

    return re.sub(r"\bdocs/([\w.-]+\.md(?:#[\w-]+)?)", link, text.replace("``", "`"))


if __name__ == "__main__":
    CONFIG.write_text(config_page(CONFIG.read_text(encoding="utf-8")), encoding="utf-8")
    CLI.write_text(cli_page(), encoding="utf-8")
