"""Commands that are known by an outline, and imported when they are called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group


class Outline(NamedTuple):
    place: str
    """The module, and what in it is the command: a function, or a ``typer.Typer`` with commands of its own."""
    short_help: str
    hidden: bool = False


class _Loaded(Mapping[str, Any]):
    """The commands by name, each made of its outline when it is asked for."""

    def __init__(self, outlines: Mapping[str, Outline]) -> None:
        self._outlines = outlines
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = _command(name, self._outlines[name])
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._outlines)

    def __len__(self) -> int:
        return len(self._outlines)


class Outlined(TyperGroup):
    """A group of commands with ``outlines``."""

    outlines: Mapping[str, Outline] = {}

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Loaded(self.outlines)  # type: ignore[assignment]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Lists the commands by their outlines; none is imported."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, one.short_help) for name, one in self.outlines.items() if not one.hidden])


def _command(name: str, outline: Outline) -> Any:
    module, _, attribute = outline.place.partition(":")
    found = getattr(import_module(module), attribute)
    if isinstance(found, typer.Typer):
        command: Any = get_group(found)
    else:
        alone = typer.Typer(rich_markup_mode=None, add_completion=False)
        settings = {"allow_extra_args": True, "ignore_unknown_options": True} if outline.hidden else None
        alone.command(name, hidden=outline.hidden, context_settings=settings)(found)
        command = get_command(alone)
    command.name = name
    return command
