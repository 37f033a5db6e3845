"""Options that several commands have: those that ask a running broker, and those that start Spark."""

from __future__ import annotations

import errno
import functools
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TypeVar

import typer

from headway.console import printable
from headway.core.base import ConfigError, format_count, format_duration, format_rate, format_size
from headway.core.policy import METERS

# -- options -----------------------------------------------------------------------------------------------------------


AdminOption = Annotated[
    str | None,
    typer.Option(
        "--admin", metavar="URL", envvar="HEADWAY_ADMIN", show_envvar=False,
        help="The broker's admin API.  [default: $HEADWAY_ADMIN or http://127.0.0.1:9883]",
    ),
]  # fmt: skip
CaOption = Annotated[
    Path | None,
    typer.Option("--ca", metavar="FILE", help="The CA of a broker with TLS (https://...).  [default: $HEADWAY_CA]"),
]
ConfiguredAdminOption = Annotated[
    str | None, typer.Option("--admin", metavar="URL", help="The broker's admin API.  [default: as the config says]")
]

MasterOption = Annotated[str, typer.Option("--master", metavar="URL", help="local[N], or spark://HOST:PORT.")]
MemoryOption = Annotated[str, typer.Option("--memory", metavar="SIZE", help="For Spark's driver, such as 2g.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", help="Let Spark say all it has to say.")]
JsonOption = Annotated[bool, typer.Option("--json", help="As JSON, for programs.")]


# -- errors ------------------------------------------------------------------------------------------------------------
#
# Errors of commands in plain words: mistakes as one line each, and exit code 2.


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


# -- figures -----------------------------------------------------------------------------------------------------------
#
# Figures of the admin API for people: short, in units, blank where there is nothing.


STYLES = {
    "ok": "green", "behind": "cyan", "slow": "bold yellow", "offline": "magenta", "conflating": "blue",
    "discarding": "red", "away": "dim",
}  # fmt: skip


def _or_dot(form: Callable[[float], str]) -> Callable[[Any], str]:
    return lambda value: form(value) if value else "·"


count, size, rate = _or_dot(format_count), _or_dot(format_size), _or_dot(format_rate)
millis = _or_dot(lambda value: format_duration(value / 1000))


def total(counts: Any) -> int:
    return sum(counts.values()) if isinstance(counts, Mapping) else 0


def ago(wall_s: float) -> str:
    """Returns an age such as ``12 s``; clocks that differ do not make it negative."""
    return format_duration(max(0.0, round(time.time() - wall_s)))


def deed(verdict: Mapping[str, Any]) -> str:
    """``disconnect``, ``discard oldest (dry run)``, ``notify: over``."""
    action = verdict.get("action") or {}
    words = str(action.get("name") or action.get("kind", "?")).replace("_", " ")
    if action.get("which"):
        words += f" {str(action['which']).replace('_', ' ')}"
    if verdict.get("kind") == "clear":
        words += ": over"
    return printable(words) + ("" if verdict.get("enforced", True) else " (dry run)")


def verdict_line(verdict: Mapping[str, Any] | None) -> str:
    """``12 s ago: disconnect, blocked (network)``."""
    if not verdict:
        return ""
    line = f"{ago(verdict.get('wall_s', 0))} ago: {deed(verdict)}"
    if verdict.get("kind") == "clear":
        return line
    cause = f" ({str(verdict['cause']).replace('_', '-')})" if verdict.get("cause") else ""
    return printable(f"{line}, {str(verdict.get('reason', '?')).replace('_', ' ')}{cause}")


def reading_line(reading: Mapping[str, Any]) -> str:
    """``blocked_time  31.2 s > 30 s``."""
    meter = str(reading.get("meter", "?"))
    form = METERS[meter].unit.format if meter in METERS else str
    value, threshold = form(reading.get("value", 0)), form(reading.get("threshold", 0))
    held = "" if reading.get("held", True) else "   (did not hold)"
    return printable(f"{meter:<22} {value} {reading.get('op', '>')} {threshold}{held}")
