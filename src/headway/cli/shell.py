"""For the shell around the command line: completion, and the man page."""

from __future__ import annotations

import os
from collections.abc import Iterator
from enum import StrEnum
from inspect import cleandoc
from typing import Annotated, Any, NamedTuple

import typer
from typer.completion import completion_init, get_completion_script  # type: ignore[attr-defined]

from headway import __version__
from headway.cli.options import plainly
from headway.core.base import ConfigError

# -- absent ------------------------------------------------------------------------------------------------------------
#
# `headway demo` where there is none: an installation has no demo, and says where it is.


@plainly
def demo() -> None:
    """The demo is in a checkout of Headway: `make demo` there."""
    raise ConfigError("the demo is not installed with headway: run make demo in a checkout")


# -- completion --------------------------------------------------------------------------------------------------------
#
# `headway completion`: the script by which a shell completes commands and options. Typer writes it, and answers it.


PROGRAM, ASKED = "headway", "_HEADWAY_COMPLETE"
"""The command, and the variable of the environment by which the script asks for what may follow."""


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def answer_shells() -> None:
    """Lets the command answer a completion script, if it is one that calls."""
    if ASKED in os.environ:
        completion_init()


def completion(
    shell: Annotated[Shell, typer.Argument(help="The shell.", show_default=False)],
) -> None:
    """Print the script by which a shell completes headway's commands and options.

    \b
    Examples:
      headway completion bash >~/.local/share/bash-completion/completions/headway
      headway completion zsh >"${fpath[1]}/_headway"
      headway completion fish >~/.config/fish/completions/headway.fish
    """
    typer.echo(get_completion_script(prog_name=PROGRAM, complete_var=ASKED, shell=shell.value))


# -- walk --------------------------------------------------------------------------------------------------------------
#
# Every command with what `--help` says of it: the man page and docs/CLI.md are both made of this.


VERBATIM = "\b"
"""Stands before a paragraph of a help text whose lines are kept as they are."""


class Entry(NamedTuple):
    """A command, as its `--help` describes it."""

    path: str
    """The words that call it, such as ``headway journal show``."""
    usage: list[str]
    paragraphs: list[str]
    options: list[tuple[str, str]]
    """Arguments and options, each with its meaning, without `--help`."""


def entries(group: Any, context: Any, path: str = PROGRAM) -> Iterator[Entry]:
    """Yields the commands of a group, each before those below it; hidden ones are left out. ``context``: in which the
    group was called."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command.hidden:
            continue
        own = type(context)(command, info_name=name, parent=context)
        records = [parameter.get_help_record(own) for parameter in command.get_params(own)]
        options = [record for record in records if record is not None and "--help" not in record[0]]
        called = f"{path} {name}"
        yield Entry(called, command.collect_usage_pieces(own), paragraphs(command.help), options)
        if hasattr(command, "list_commands"):
            yield from entries(command, own, called)


def paragraphs(text: str | None) -> list[str]:
    """Returns the paragraphs of a help text."""
    return [part for part in cleandoc(text or "").split("\n\n") if part.strip()]


def verbatim(paragraph: str) -> list[str] | None:
    """Returns the lines of a paragraph that are kept as they are; None for one that is prose."""
    first, *lines = paragraph.lstrip("\n").split("\n")
    return lines if first.strip() == VERBATIM else None


# -- man ---------------------------------------------------------------------------------------------------------------
#
# `headway man`: the man page, made of what `--help` says of each command, so the two are never apart.


def man(context: typer.Context) -> None:
    """Print the man page.

    \b
    Examples:
      headway man | man -l -
      headway man >~/.local/share/man/man1/headway.1        then: man headway
    """
    root = context.find_root()
    typer.echo("\n".join(page(root.command, root)))


def page(command: Any, context: Any) -> Iterator[str]:
    """Writes the page of a command with all those below it, in troff's man macros. ``context``: in which the command
    was called."""
    said = paragraphs(command.help)
    yield f'.TH HEADWAY 1 "" "Headway {__version__}" "User Commands"'
    yield from (".SH NAME", f"headway \\- {_text(said[0].partition(': ')[2].rstrip('.'))}")
    yield from (".SH SYNOPSIS", ".B headway", r"\fICOMMAND\fR [\fIOPTIONS\fR] ...")
    yield ".SH DESCRIPTION"
    yield from _body(said[1:])
    yield ".SH COMMANDS"
    for entry in entries(command, context):
        words = " ".join(_text(word) for word in entry.usage)
        yield f".SS {_text(entry.path)} {words}"
        yield from _body(entry.paragraphs)
        for names, meaning in entry.options:
            yield from (".TP", f".B {_text(names)}", _line(meaning))
    yield from (".SH ENVIRONMENT", ".TP", ".B HEADWAY_ADMIN", "The address of the broker's admin API.")
    yield from (".TP", ".B HEADWAY_CA", "The CA of a broker with TLS.")


def _body(parts: list[str]) -> Iterator[str]:
    for part in parts:
        yield ".PP"
        kept = verbatim(part)
        if kept is not None:
            yield from (".nf", *(_line(line) for line in kept), ".fi")
        else:
            yield from (_line(line) for line in part.lstrip("\n").split("\n"))


def _line(text: str) -> str:
    """Writes a line of text, also one that begins as a request of troff does."""
    written = _text(text)
    return f"\\&{written}" if written[:1] in (".", "'") else written


def _text(text: str) -> str:
    return text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
