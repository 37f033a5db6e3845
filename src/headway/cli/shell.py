"""For the shell around the command line: completion, and the man page."""

from __future__ import annotations

import os
from collections.abc import Iterator
from enum import StrEnum
from inspect import cleandoc
from typing import Annotated, Any

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


# -- man ---------------------------------------------------------------------------------------------------------------
#
# `headway man`: the man page, made of what `--help` says of each command, so the two are never apart.


VERBATIM = "\b"
"""Stands before a paragraph of a help text whose lines are kept as they are."""


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
    said = _paragraphs(command.help)
    yield f'.TH HEADWAY 1 "" "Headway {__version__}" "User Commands"'
    yield from (".SH NAME", f"headway \\- {_text(said[0].partition(': ')[2].rstrip('.'))}")
    yield from (".SH SYNOPSIS", ".B headway", r"\fICOMMAND\fR [\fIOPTIONS\fR] ...")
    yield ".SH DESCRIPTION"
    yield from _body(said[1:])
    yield ".SH COMMANDS"
    yield from _commands(command, context, "headway")
    yield from (".SH ENVIRONMENT", ".TP", ".B HEADWAY_ADMIN", "The address of the broker's admin API.")
    yield from (".TP", ".B HEADWAY_CA", "The CA of a broker with TLS.")


def _commands(group: Any, context: Any, path: str) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command.hidden:
            continue
        own = type(context)(command, info_name=name, parent=context)
        words = " ".join(_text(word) for word in command.collect_usage_pieces(own))
        yield f".SS {_text(f'{path} {name}')} {words}"
        yield from _body(_paragraphs(command.help))
        for parameter in command.get_params(own):
            record = parameter.get_help_record(own)
            if record is not None and "--help" not in record[0]:
                yield from (".TP", f".B {_text(record[0])}", _line(record[1]))
        if hasattr(command, "list_commands"):
            yield from _commands(command, own, f"{path} {name}")


def _paragraphs(text: str | None) -> list[str]:
    return [part for part in cleandoc(text or "").split("\n\n") if part.strip()]


def _body(paragraphs: list[str]) -> Iterator[str]:
    for part in paragraphs:
        yield ".PP"
        lines = part.lstrip("\n").split("\n")
        if lines[0].strip() == VERBATIM:
            yield from (".nf", *(_line(line) for line in lines[1:]), ".fi")
        else:
            yield from (_line(line) for line in lines)


def _line(text: str) -> str:
    """Writes a line of text, also one that begins as a request of troff does."""
    written = _text(text)
    return f"\\&{written}" if written[:1] in (".", "'") else written


def _text(text: str) -> str:
    return text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
