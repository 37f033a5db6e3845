"""`headway completion`: the script by which a shell completes commands and options. Typer writes it, and answers it."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Annotated

import typer
from typer.completion import completion_init, get_completion_script  # type: ignore[attr-defined]

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
