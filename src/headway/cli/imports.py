"""``headway import``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.options import NOTHING_FOUND, plainly
from headway.console import printable
from headway.core.base import ConfigError
from headway.store.atomic_write import atomic_write

if TYPE_CHECKING:
    from headway.migration import Import


KINDS = "activemq, amps, qpid, qpidd, xap, rabbitmq, redis, nats, mosquitto"
"""Words for ``--from``. The importer itself is loaded when it is asked for."""


@plainly
def import_config(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Configurations of one other system.", show_default=False)
    ],
    kind: Annotated[
        str, typer.Option("--from", metavar="KIND", help=f"{KINDS}.  [default: told by the file]", show_default=False)
    ] = "",
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Written instead of stdout.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit code 1 if any setting has no counterpart.")
    ] = False,
) -> None:
    """Read configurations of another system, and print one of Headway's that does the same about slow consumers.

    ActiveMQ and JBoss A-MQ (activemq.xml), Qpid (config.xml, virtualhosts.xml, qpidd.conf), AMPS (XML), XAP (system
    properties, services.config), RabbitMQ (rabbitmq.conf, definitions.json), Redis, NATS, mosquitto. Each key names the
    line that it comes from. Settings without a counterpart are comments at the end, and are listed on stderr.

    \b
    Examples:
      headway import activemq.xml -o headway.toml && headway check headway.toml
      headway import rabbitmq.conf definitions.json      two files of one system
      headway import --from redis limits.conf            when the file does not tell
      headway import mosquitto.conf --strict >/dev/null  in a pipeline: 1 if something has no counterpart
    """
    from headway.migration import import_files

    if out is not None and out.exists() and not force:
        raise ConfigError(f"{out}: is there already; --force writes over it")
    found = import_files(files, kind)
    if out is None:
        typer.echo(found.text, nl=False)
    else:
        _write(out, found.text)
    _report(found, out)
    if strict and found.lost:
        raise typer.Exit(NOTHING_FOUND)


def _write(path: Path, text: str) -> None:
    try:
        with atomic_write(path) as partial:
            partial.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {(error.strerror or str(error)).lower()}") from None


def _report(found: Import, out: Path | None) -> None:
    """Prints on stderr what has no counterpart, a line each, and how many settings there are of each kind."""
    rows = [(str(one.where), _short(f"{one.option} {one.value}"), one.why) for one in found.lost]
    if rows:
        print("Without counterpart:", file=sys.stderr)
    widths = [max((len(row[column]) for row in rows), default=0) for column in (0, 1)]
    for place, setting, why in rows:
        print(printable(f"  {place:<{widths[0]}}  {setting:<{widths[1]}}  {why}"), file=sys.stderr)
    print(printable(found.summary), file=sys.stderr)
    if out is not None:
        print(f"Written: {printable(out)}. Next: headway check {printable(out)}", file=sys.stderr)


def _short(text: str) -> str:
    text = text.strip()
    return text if len(text) <= 60 else f"{text[:57]}..."
