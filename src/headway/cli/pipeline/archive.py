"""``headway pipeline archive``: recorded topics into an archive of Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.errors import needing, plainly
from headway.cli.options import ConfiguredAdminOption, MasterOption, MemoryOption, VerboseOption
from headway.console import many, printable
from headway.core.base import ConfigError, format_size, parse_duration
from headway.core.message import covers
from headway.server.config import Settings, load_settings

if TYPE_CHECKING:
    from headway.pipeline.archive.run import Archived


@plainly
def archive(
    config: Annotated[
        Path, typer.Option("--config", "-c", metavar="FILE", help="The broker's config, with recorded topics.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The archive.")],
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC]...", help="The filters of these [[topic]] tables only.")
    ] = None,
    every: Annotated[
        str | None,
        typer.Option("--every", metavar="DURATION", help="Again and again, so long apart, until it is stopped."),
    ] = None,
    master: MasterOption = "local[*]",
    memory: MemoryOption = "2g",
    admin: ConfiguredAdminOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Keep what is recorded, also after the broker has deleted it.

    Each recorded topic has a folder of plain Parquet files in OUT, by day, with every record once. Run it again to add
    what came since: the broker keeps it until it is archived. Small files become large ones.

    \b
    Examples:
      headway pipeline archive -c headway.toml --out archive
      headway pipeline archive -c headway.toml --out archive --every 1m "flights/#"
      python -c 'import pandas; print(pandas.read_parquet("archive/flights"))'
    """
    with needing("spark", "the pipeline"):
        from headway.pipeline.admin import admin_url
        from headway.pipeline.archive.run import run_archive

    settings = load_settings(config)
    every_s = None if every is None else parse_duration(every)
    run_archive(
        _chosen(settings, topics or []), admin_url(settings, admin), out, _say, every_s=every_s, master=master,
        memory=memory, verbose=verbose,
    )  # fmt: skip


def _chosen(settings: Settings, wanted: list[str]) -> list[str]:
    """Returns the filters to archive. Raises ConfigError."""
    recorded = [topic.filter for topic in settings.topics if topic.keep is not None]
    if not recorded:
        raise ConfigError('nothing is recorded: add [journal], and a [[topic]] with keep = "7d", or so')
    for filter in wanted:
        if filter not in recorded:
            near = next((one for one in recorded if covers(one, filter)), None)
            hint = f"; it is a part of {near}" if near else ""
            raise ConfigError(f"{filter} is not what a [[topic]] with keep says: {', '.join(recorded)}{hint}")
    return wanted or recorded


def _say(archived: list[Archived]) -> None:
    for one in archived:
        upto = f"all before offset {one.end}" if one.end else "nothing yet"
        files = f"{many(one.files, 'file')}, {format_size(one.bytes)}"
        typer.echo(printable(f"{one.filter}: {upto}, {files} in {one.folder}"))
