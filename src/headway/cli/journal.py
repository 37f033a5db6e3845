"""``headway journal``: shows, verifies and compacts a journal; its backups: backups/."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.backups import backup, restore
from headway.cli.options import NOTHING_FOUND, plainly, say
from headway.console import many, printable
from headway.core.base import ConfigError, format_count, format_size

if TYPE_CHECKING:
    from headway.server.offline import Inventory, StreamSummary
    from headway.store.journal import SegmentStats

SHOWN_MAX = 20

journal = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False,
    help="Shows, verifies, compacts, saves or restores a journal.",
)  # fmt: skip

FolderArgument = Annotated[
    Path | None, typer.Argument(metavar="[FOLDER]", help="The journal's folder ([journal] path).", show_default=False)
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", help="The broker's config, in place of the folder."),
]


@journal.command(short_help="What it has: streams, and what is kept for whom.")
@plainly
def show(
    folder: FolderArgument = None,
    config: ConfigOption = None,
    segments: Annotated[bool, typer.Option("--segments", help="Each segment by itself.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
) -> None:
    """Shows a journal's streams, and what each client and queue keeps in it, also beside a running broker.

    \b
    main        metadata, and the unsettled records of durable sessions and queues
    retained    retained records
    topic-...   a recorded topic each; with --config it says which
    UNSETTLED   records that are still to be delivered, or to be acknowledged
    Beside a broker it shows what was on disk when it began.

    \b
    Examples:
      headway journal show /var/lib/headway
      headway journal show --config headway.toml --segments
      headway journal show /var/lib/headway --json | jq '.holders[] | select(.records > 0)'
    """
    from headway.server.offline import describe_streams, settings_for, take_inventory, while_it_lasts
    from headway.store.journal import Corrupt

    settings = settings_for(folder, config)
    try:
        lines, kept = while_it_lasts(lambda: (describe_streams(settings), take_inventory(settings)))
    except Corrupt as error:
        raise ConfigError(str(error)) from None
    except FileNotFoundError as error:
        raise ConfigError(f"{error.filename}: its broker removes files faster than they can be read") from None
    except OSError as error:
        raise _unreadable(settings.journal.folder, error) from None
    if as_json:
        typer.echo(json.dumps(_as_json(lines, kept), indent=2))
        return
    total = sum(segment.bytes for line in lines for segment in line.segments)
    typer.echo(f"{settings.journal.folder}: {many(len(lines), 'stream')}, {format_size(total)}\n")
    _show_streams(lines, segments)
    typer.echo("")
    _show_kept(kept)


def _show_streams(lines: list[StreamSummary], with_segments: bool) -> None:
    rows: list[tuple[str, ...]] = [("STREAM", "SEGMENTS", "RECORDS", "OFFSETS", "WRITTEN", "BYTES")]
    for line in lines:
        size = sum(segment.bytes for segment in line.segments)
        about = (str(len(line.segments)), format_count(line.records), *_where(line.segments), format_size(size))
        rows.append((line.name + (f" ({line.filter})" if line.filter else ""), *about))
        if with_segments:
            rows += [
                (f"  {one.name}", many(one.batches, "batch"), "", *_where([one]), format_size(one.bytes))
                for one in line.segments
            ]
    _table(rows)


def _where(segments: list[SegmentStats]) -> tuple[str, str]:
    """Returns a stream's offsets and times."""
    offsets = [one for one in segments if one.first_sequence]
    times = [one for one in segments if one.first_time_us is not None]
    return (
        f"{offsets[0].first_sequence} to {offsets[-1].last_sequence}" if offsets else "none",
        f"{_time(times[0].first_time_us)} to {_time(times[-1].last_time_us)}" if times else "never",
    )


def _show_kept(kept: Inventory) -> None:
    queues = sum(not one.filter for one in kept.holders)
    typer.echo(
        f"kept: {many(kept.sessions, 'session')}, {many(len(kept.holders) - queues, 'subscription')}, "
        f"{many(queues, 'queue')}, {many(kept.exchanges, 'exchange')}, {many(kept.retained, 'retained record')}"
    )
    if not kept.holders:
        return
    rows: list[tuple[str, ...]] = [("KEPT FOR", "FILTER", "UNSETTLED", "BYTES")]
    for one in kept.holders[:SHOWN_MAX]:
        rows.append((one.name, one.filter or "(a queue)", format_count(one.records), format_size(one.bytes)))
    _table(rows)
    if len(kept.holders) > SHOWN_MAX:
        typer.echo(f"and {len(kept.holders) - SHOWN_MAX} more with less (--json shows all)")


def _table(rows: list[tuple[str, ...]]) -> None:
    widths = [max(len(printable(row[at])) for row in rows) for at in range(len(rows[0]))]
    for row in rows:
        cells = (printable(cell).ljust(width) for cell, width in zip(row, widths, strict=True))
        typer.echo("  ".join(cells).rstrip())


def _as_json(lines: list[StreamSummary], kept: Inventory) -> dict[str, Any]:
    streams = [
        {
            "name": line.name, "filter": line.filter, "records": line.records,
            "bytes": sum(segment.bytes for segment in line.segments),
            "segments": [segment._asdict() for segment in line.segments],
        }
        for line in lines
    ]  # fmt: skip
    return {"streams": streams, **kept._asdict(), "holders": [holder._asdict() for holder in kept.holders]}


journal.command(short_help="Save it, also beside its broker.")(backup)
journal.command(short_help="Make a journal of a backup.")(restore)


@journal.command(short_help="Find everything that is wrong with it.")
@plainly
def verify(folder: FolderArgument = None, config: ConfigOption = None) -> None:
    """Read a journal from end to end and say everything that is wrong with it. Nothing is changed.

    It works beside a running broker. Exit code 0: all is well, 1: something that had been on disk cannot be read.
    LOST is damage to the files, or a missing file, also one that was deleted on purpose: a broker does not start on it
    without `headway serve --repair`, and with it goes on with what can be read. ASIDE is an entry that is whole and
    means nothing: a broker that starts sets it aside.

    \b
    Examples:
      headway journal verify /var/lib/headway
      headway journal verify --config headway.toml && echo sound
    """
    from headway.server.offline import expected_streams, find_odd_entries, settings_for, while_it_lasts
    from headway.store.journal import Corrupt, check

    settings = settings_for(folder, config)
    path = settings.journal.folder
    try:
        found = check(path, expected=expected_streams(settings))
        losses = sum(len(report.losses) for report in found)
        # A broker does not read the entries of a damaged journal, either.
        odd = [] if losses else while_it_lasts(lambda: find_odd_entries(settings))
    except Corrupt as error:
        raise ConfigError(str(error)) from None
    except OSError as error:
        raise _unreadable(path, error) from None
    for report in found:
        for line in report.losses:
            typer.echo(f"LOST  {printable(line)}")
        for line in report.notes:
            typer.echo(f"note  {printable(line)}")
    for line in odd[:SHOWN_MAX]:
        typer.echo(f"ASIDE {printable(line)}")
    segments = [segment for report in found for segment in report.segments]
    wrong = f"{many(losses, 'loss')}: with `headway serve --repair` a broker goes on with what can be read"
    aside = f"a broker that starts sets aside {many(len(odd), 'entry')}"
    verdict = "; ".join([wrong] * bool(losses) + [aside] * bool(odd)) or "all of it is sound"
    total = format_size(sum(segment.bytes for segment in segments))
    streams = sum(bool(report.segments) for report in found)
    typer.echo(f"{path}: {many(streams, 'stream')}, {many(len(segments), 'segment')}, {total}; {verdict}")
    if losses or odd:
        raise typer.Exit(NOTHING_FOUND)


@journal.command(short_help="Make it smaller: delete what is no longer needed.")
@plainly
def compact(folder: FolderArgument = None, config: ConfigOption = None) -> None:
    """Write what is kept to the beginning of new segments, and delete the segments that are no longer needed. No broker
    may be running on the journal.

    What a durable session or queue has not settled stays, and so does the segment it is in. Recorded topics are
    shortened to their `keep` with --config; by the folder alone that is not known, and they stay as they are. A broker
    does all this by itself while it runs.

    \b
    Examples:
      headway journal compact --config headway.toml
      headway journal compact /var/lib/headway
    """
    from headway.server.offline import compact as work
    from headway.server.offline import settings_for

    settings = settings_for(folder, config)
    try:
        sizes = work(settings)
    except ConfigError as error:
        more = "; stop the broker first" if "in use" in str(error) else ""
        raise ConfigError(f"{error}{more}") from None
    except OSError as error:
        say(f"{error.filename or settings.journal.folder}: cannot be written: {(error.strerror or str(error)).lower()}")
        raise typer.Exit(2) from None
    freed = sum(before - after for before, after in sizes.values())
    for name, (before, after) in sizes.items():
        if before != after:
            typer.echo(f"{printable(name)}: {format_size(before)}, now {format_size(after)}")
    left = format_size(sum(after for _, after in sizes.values()))
    typer.echo(f"{format_size(max(0, freed))} are free; {left} are left." if freed > 0 else
               f"There was nothing to free; {left} are left.")  # fmt: skip


def _unreadable(folder: Path, error: OSError) -> ConfigError:
    return ConfigError(f"{error.filename or folder}: cannot be read: {(error.strerror or str(error)).lower()}")


def _time(time_us: int | None) -> str:
    assert time_us is not None
    return f"{datetime.fromtimestamp(time_us // 1_000_000, UTC):%Y-%m-%dT%H:%M:%SZ}"
