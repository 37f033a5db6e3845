"""Backups of a journal, and journals made of them: ``headway journal backup`` and ``restore``."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.client import HTTPResponse
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from headway import __version__
from headway.cli.admin import AdminClient
from headway.cli.options import AdminOption, CaOption, plainly
from headway.console import many, printable
from headway.core.base import ConfigError, format_size
from headway.store.backup import BadBackup, Contents

# -- hold --------------------------------------------------------------------------------------------------------------
#
# A hold: a broker's promise to remove no file of its journal, for as long as its answer is open.


HELD_S = 60.0
"""Time in which a broker that holds its journal says so again."""


class Hold:
    def __init__(self, broker: AdminClient) -> None:
        """Raises ConfigError."""
        self._answer: HTTPResponse = broker.hold_journal()
        try:
            self.contents = msgspec.json.decode(self._answer.readline(), type=Contents)
        except (OSError, http.client.HTTPException, msgspec.MsgspecError) as error:
            raise ConfigError(f"the broker at {broker.url} does not list its journal's files: {error}") from None
        self._ended = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *_: object) -> None:
        """Lets the broker go on removing files. Waits until the thread that listens has heard from it once more."""
        self._ended.set()
        self._answer.close()

    @property
    def ended(self) -> bool:
        """Whether the broker may have removed files by now."""
        return self._ended.is_set()

    def check(self) -> None:
        """Raises BadBackup if the broker does not hold the files any more."""
        if self.ended:
            raise BadBackup("its broker stopped, or broke the connection, before all was copied")

    def _listen(self) -> None:
        """Reads what shows that the files are held. Runs in a thread."""
        try:
            while self._answer.read(1):
                pass
        except (OSError, ValueError, AttributeError, http.client.HTTPException):
            pass  # the same as the end
        self._ended.set()


# -- command -----------------------------------------------------------------------------------------------------------
#
# ``headway journal backup`` and ``restore``: a journal is copied beside its broker, and made anew from the copy.


@plainly
def backup(
    place: Annotated[Path, typer.Argument(metavar="DEST", help="The folder to make.", show_default=False)],
    admin: AdminOption = None,
    ca: CaOption = None,
    folder: Annotated[
        Path | None, typer.Option("--journal", metavar="FOLDER", help="A journal without a broker.", show_default=False)
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", metavar="FILE", help="The same, by the broker's config.", show_default=False),
    ] = None,
) -> None:
    """Saves a journal in a new folder, as it is when the command begins: all that is confirmed by then is in it.

    The broker goes on meanwhile. It only says which files to copy, and keeps these until they are copied, so this runs
    on its machine, as a user who can read the journal, and needs the right to change at the admin API.
    The folder appears when all of it is copied, synced, and read again without an error.

    \b
    Examples:
      headway journal backup /backup/headway-$(date +%F)
      headway journal backup /backup/headway --journal /var/lib/headway       its broker is not running
    """
    from headway.server.offline import exclusive, settings_for
    from headway.store.backup import contents_at_rest, make_backup

    place = place.absolute()
    if place.exists():
        raise ConfigError(f"{place}: exists already")
    with _or_else("no backup was made"):
        if folder is not None or config is not None:
            path = settings_for(folder, config).journal.folder
            with exclusive(path):
                contents = contents_at_rest(path.absolute(), time.time_ns() // 1000, __version__)
                make_backup(contents, place, lambda: None)
        else:
            with Hold(AdminClient(admin, HELD_S, ca)) as hold:
                contents = hold.contents
                make_backup(contents, place, hold.check)
    typer.echo(f"{printable(place)}: {_about(contents)}")


@plainly
def restore(
    place: Annotated[Path, typer.Argument(metavar="BACKUP", help="A backup's folder.", show_default=False)],
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The journal's folder: new, or empty.", show_default=False)
    ],
) -> None:
    """Makes a journal's folder of a backup, for a broker that is not running yet. The backup stays as it is.

    \b
    Examples:
      headway journal restore /backup/headway-2026-01-31 /var/lib/headway
    """
    from headway.store.backup import restore_backup

    with _or_else("nothing was restored"):
        contents = restore_backup(place, folder.absolute())
    typer.echo(f"{printable(folder)}: {_about(contents)}")


@contextmanager
def _or_else(said: str) -> Iterator[None]:
    """Wraps the work: what ends it is told in plain words, after what became of it. Raises ConfigError."""
    from headway.store.backup import BadBackup

    try:
        yield
    except BadBackup as error:
        raise ConfigError(f"{said}: {error}") from None
    except OSError as error:
        what = f"{error.filename}: " if error.filename else ""
        raise ConfigError(f"{said}: {what}{(error.strerror or str(error)).lower()}") from None


def _about(contents: Contents) -> str:
    made = datetime.fromtimestamp(contents.time_us // 1_000_000, UTC)
    return (f"{many(len(contents.files), 'file')}, {format_size(contents.bytes)}, as of {made:%Y-%m-%dT%H:%M:%SZ}, "
            "all of it sound")  # fmt: skip
