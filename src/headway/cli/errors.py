"""Errors of commands in plain words: mistakes as one line each, and exit code 2."""

from __future__ import annotations

import errno
import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

import typer

from headway.console import printable
from headway.core.base import ConfigError

P = ParamSpec("P")
T = TypeVar("T")

MISTAKE = 2
"""Exit code for what the user can put right: a config, a broker that is not running, a wrong argument."""
NOTHING_FOUND = 1

_ADDRESS_TROUBLE = (errno.EADDRINUSE, errno.EACCES, errno.EADDRNOTAVAIL)


def plainly(command: Callable[P, T]) -> Callable[P, T]:
    """Decorates a command: mistakes end it with their lines on stderr, Ctrl-C ends it without a word."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return command(*args, **kwargs)
        except ConfigError as error:
            say(str(error))
        except OSError as error:
            if error.errno not in _ADDRESS_TROUBLE:
                raise
            say(f"cannot listen: {(error.strerror or str(error)).lower()}")
        except UnicodeError as error:
            if "idna" not in str(error):
                raise
            say(f"this is not the name of a host: {str(error).lower()}")
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
        raise typer.Exit(MISTAKE)

    return run


@contextmanager
def needing(extra: str, what: str) -> Iterator[None]:
    """Wraps imports of packages that only an extra of ours installs."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "headway":
            raise
        say(f"{what} needs the package {error.name}; install it: pip install 'headway[{extra}]'")
        raise typer.Exit(MISTAKE) from None


def say(text: str) -> None:
    """Prints every line on stderr, with our name in front."""
    for line in text.splitlines():
        print(f"headway: {printable(line)}", file=sys.stderr)
