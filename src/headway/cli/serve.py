"""`headway serve`: runs the broker."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from headway.cli.options import plainly, say
from headway.core.base import ConfigError
from headway.server.config import (
    PRESETS,
    Settings,
    default_text,
    load_settings,
    parse_settings,
    preset_text,
    recording_text,
    remarks,
)


@plainly
def serve(
    config: Annotated[Path | None, typer.Option("--config", "-c", metavar="FILE", help="The config, in TOML.")] = None,
    ready_file: Annotated[
        Path | None,
        typer.Option(
            "--ready-file", metavar="FILE",
            help="Written when all ports listen: the addresses and the pid, as JSON. It goes with the broker.",
        ),
    ] = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print the config, by default the embedded one, and do not serve.")
    ] = False,
    preset: Annotated[
        str, typer.Option("--preset", metavar="SYSTEM", help=f"Treat slow consumers as it does: {', '.join(PRESETS)}.",
                          show_default=False)
    ] = "",
    record: Annotated[
        list[str] | None,
        typer.Option("--record", metavar="FILTER", help="Keep the records of these topics for a day, for replay and "
                     "for Spark; may be given again.", show_default=False)
    ] = None,
    data: Annotated[
        Path, typer.Option("--data", metavar="DIR", help="The journal's folder, with --record.")
    ] = Path("headway-data"),
    repair: Annotated[
        bool, typer.Option("--repair", help="Start from what can be read of a damaged journal; log what is lost.")
    ] = False,
) -> None:
    """Run the broker until SIGTERM or Ctrl-C; SIGHUP reads the config again.

    Without a config: MQTT on 127.0.0.1:1883, AMQP on 5672, STOMP on 61613, the admin API on 9883, and a policy that
    loses nothing and says who does not read.

    \b
    Examples:
      headway serve
      headway serve --print-config >headway.toml        start from the default
      headway serve --preset nats                       slow consumers as NATS has them; also with --print-config
      headway serve --record 'flights/#'                and keep its records in ./headway-data; also with --print-config
      headway serve --config headway.toml
      headway serve -c test.toml --ready-file ready.json with port 0 in its URLs: takes free ports, and says which
    """
    settings = _served(config, preset, record or [], data)
    if print_config:
        typer.echo(settings.text, nl=not settings.text.endswith("\n"))
        return
    if ready_file is not None and (ready_file.is_dir() or not os.access(ready_file.parent, os.W_OK)):
        raise ConfigError(f"--ready-file {ready_file}: cannot be written there")
    for line in remarks(settings):
        say(line)
    from headway.server.main import run

    if ready_file is None:
        raise typer.Exit(run(settings, repair=repair))
    ready_file.unlink(missing_ok=True)  # of a broker that was killed
    try:
        raise typer.Exit(run(settings, ready_file, repair=repair))
    finally:
        ready_file.unlink(missing_ok=True)


def _served(config: Path | None, preset: str, record: list[str], data: Path) -> Settings:
    """Returns the settings that ``serve`` was asked for. Raises ConfigError."""
    if config is None:
        text = preset_text(preset) if preset else default_text()
        return parse_settings(recording_text(text, record, data) if record else text)
    if preset:
        raise ConfigError("--preset and --config: one or the other (--preset with --print-config: to start from)")
    if record:
        raise ConfigError("--record and --config: one or the other (in a config: [journal], and a [[topic]] with keep)")
    return load_settings(config)
