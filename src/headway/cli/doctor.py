"""`headway doctor`: is everything here that the broker needs? Each trouble comes with the command that mends it."""

from __future__ import annotations

import errno
import getpass
import json
import os
import platform
import resource
import shlex
import shutil
from collections.abc import Iterator
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from headway import __version__
from headway.cli.options import MISTAKE, plainly
from headway.console import printable
from headway.core.base import ConfigError, format_count, format_size
from headway.pipeline.java import check_java
from headway.server.config import Settings, Url, host_limits, load_settings, writable
from headway.server.transport import bound

# -- finding -----------------------------------------------------------------------------------------------------------
#
# A finding of `headway doctor`: what was looked at, how it is, and the command that mends it.


class State(StrEnum):
    GOOD = "good"
    DOUBTFUL = "doubtful"
    """The broker runs, and less well than it could."""
    BAD = "bad"
    """The broker does not start, or loses what it should keep."""


class Finding(NamedTuple):
    subject: str
    """A short name, such as ``descriptors``."""
    state: State
    text: str
    mend: str = ""
    """A command, or a line for the config; empty where nothing is wrong."""


def good(subject: str, text: str) -> Finding:
    return Finding(subject, State.GOOD, text)


def doubtful(subject: str, text: str, mend: str) -> Finding:
    return Finding(subject, State.DOUBTFUL, text, mend)


def bad(subject: str, text: str, mend: str) -> Finding:
    return Finding(subject, State.BAD, text, mend)


# -- machine -----------------------------------------------------------------------------------------------------------
#
# The machine: open files, memory, disks, the kernel's limits for sockets, and whether the ports are free.


BACKLOG = 4096
"""Connections that a listener lets wait to be accepted (server/listener.py)."""
FILES_BESIDE = 300
"""Files beside the listeners' connections: the admin API's connections, the journal, the spill, the lake."""
ROOM_BYTES_MIN = 1_000_000_000
"""A journal with less room than this is near its end."""
UNPRIVILEGED = 1024
FLEETING = ("tmpfs", "ramfs")
"""File systems that lose everything at a restart of the machine."""
_SYSCTL = Path("/proc/sys")


def machine(settings: Settings, *, sysctl: Path = _SYSCTL, mounts: Path = Path("/proc/mounts")) -> Iterator[Finding]:
    yield _descriptors(settings)
    yield _memory(settings)
    yield from _disks(settings, mounts)
    yield from _kernel(settings, sysctl)
    yield from _ports(settings)


def _descriptors(settings: Settings) -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        return good("descriptors", "no limit")
    given = [one for one in settings.listeners.values() if "connections_max" in one.model_fields_set]
    wanted = sum(one.connections_max for one in given) + FILES_BESIDE
    may = f"the broker may open {format_count(hard)} files (it raises its own limit of {format_count(soft)})"
    if hard >= wanted:
        return good("descriptors", may)
    mend = f"LimitNOFILE={wanted} in the unit, or: ulimit -Hn {wanted} as root before the start"
    return bad("descriptors", f"{may}, and the config asks for {format_count(wanted)}", mend)


def _memory(settings: Settings) -> Finding:
    there = host_limits.memory_bytes()
    pools = sum(pool.memory_bytes for pool in settings.pools.values())
    text = f"pools may take {format_size(pools)} of {format_size(there)}"
    if pools > there * 0.8:
        return doubtful("memory", f"{text}: the rest is little for all else", 'memory = "50%" in [pool]')
    return good("memory", text)


# -- disks ------------------------------------------------------------------------------------------------------------


def _disks(settings: Settings, mounts: Path) -> Iterator[Finding]:
    for key, folder in writable.folders(settings).items():
        if why := writable.why_not_writable(folder):
            user = getpass.getuser()
            mend = f"sudo install -d -o {shlex.quote(user)} {shlex.quote(str(folder))}"
            yield bad(key, f"{folder} cannot be written: {why}", mend)
            continue
        yield _room(settings, key, folder)
        kind = _file_system(folder, mounts)
        if kind in FLEETING and key in ("journal.path", "history.path"):
            text = f"{folder} is on {kind}, which a restart of the machine empties: confirmed records would be gone"
            yield bad(key, text, f'path = "/var/lib/headway" in [{key.partition(".")[0]}]')


def _room(settings: Settings, key: str, folder: Path) -> Finding:
    there = folder
    while not there.exists():
        there = there.parent
    free = shutil.disk_usage(there).free
    text = f"{folder} has {format_size(free)} free"
    listing = f"df -h {shlex.quote(str(there))}"
    if key.endswith("disk_path"):
        wanted = sum(pool.disk_bytes for pool in settings.pools.values() if pool.disk_path == folder)
        if free < wanted:
            text = f"{text}, and pools may take {format_size(wanted)} there"
            return doubtful(key, text, f"{listing}; a smaller disk = ... in [pool], or another disk_path")
    elif free < ROOM_BYTES_MIN:
        return doubtful(key, f"{text}, which is little", f"{listing}; another path, or a smaller keep of the topics")
    return good(key, text)


def _file_system(folder: Path, mounts: Path) -> str:
    """Returns the kind of the file system that a folder is on, or will be; empty: nobody tells."""
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return ""
    path, found, kind = os.path.realpath(folder), "", ""
    for line in lines:
        _, at, what, *_ = line.split(" ")
        at = at.encode().decode("unicode_escape")  # \040 is a blank
        if (path == at or path.startswith(at.rstrip("/") + "/")) and len(at) >= len(found):
            found, kind = at, what
    return kind


# -- the kernel -------------------------------------------------------------------------------------------------------


def _kernel(settings: Settings, root: Path) -> Iterator[Finding]:
    wanted = {
        "net.core.somaxconn": (BACKLOG, "connections that wait to be accepted, when many come at once"),
        "net.core.wmem_max": (
            settings.server.send_buffer_bytes // 2, f"send_buffer, {format_size(settings.server.send_buffer_bytes)}",
        ),
    }  # fmt: skip
    for name, (least, what) in wanted.items():
        try:
            value = int(root.joinpath(*name.split(".")).read_text().split()[-1])
        except (OSError, ValueError, IndexError):
            continue  # this system has no such limit
        if value >= least:
            yield good(name, format_count(value))
        else:
            text = f"{format_count(value)} is less than {format_count(least)}, for {what}"
            yield doubtful(name, text, f"sudo sysctl -w {name}={least}")


# -- ports ------------------------------------------------------------------------------------------------------------


def _ports(settings: Settings) -> Iterator[Finding]:
    asked = {f"listeners.{name}": table.url for name, table in settings.listeners.items()}
    if settings.server.admin is not None:
        asked["server.admin"] = settings.server.admin
    for key, url in asked.items():
        yield _port(key, url)


def _port(key: str, url: Url) -> Finding:
    try:
        with bound(url.host, url.port) as sock:
            sock.listen()  # two may be bound where neither listens
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return bad(key, f"{url} is taken by another process", f"sudo ss -ltnp 'sport = :{url.port}'")
        if error.errno == errno.EACCES and url.port < UNPRIVILEGED:
            mend = f"sudo sysctl -w net.ipv4.ip_unprivileged_port_start={url.port}"
            return bad(key, f"{url}: this user may not listen below {UNPRIVILEGED}", mend)
        if error.errno == errno.EADDRNOTAVAIL:
            return bad(key, f"{url}: this machine has no such address", "ip address")
        return bad(key, f"{url}: {(error.strerror or str(error)).lower()}", "ip address; sudo ss -ltnp")
    return good(key, f"{url} is free")


# -- software ----------------------------------------------------------------------------------------------------------
#
# Software: versions of Python, Headway and what it needs; of Java and Spark, where Spark is installed or asked for.


EXTRAS = {"telemetry": "pyarrow", "otel": "opentelemetry-exporter-otlp-proto-http", "spark": "pyspark"}
"""Extras, and the package by which one knows that it is installed."""
_TABLES = {"telemetry": "[telemetry]", "otel": "[traces]", "spark": "[views]"}
"""The tables of the config that ask for them."""
_BASE = "headway"


def software(settings: Settings) -> Iterator[Finding]:
    yield good("python", f"{platform.python_version()} ({platform.python_implementation()})")
    yield from _packages()
    wanted = {
        "telemetry": settings.telemetry.enabled, "otel": settings.traces.enabled, "spark": bool(settings.views)
    }  # fmt: skip
    for extra, package in EXTRAS.items():
        yield from _extra(extra, package, wanted=wanted[extra])


def _packages() -> Iterator[Finding]:
    """Compares what is installed with what this version of Headway needs."""
    try:
        needed = metadata.requires(_BASE) or []
    except metadata.PackageNotFoundError:
        yield good("headway", f"{__version__}, from a folder of sources")
        return
    missing = []
    for line in needed:
        requirement, _, marker = line.partition(";")
        if "extra" in marker:
            continue
        name = _name_of(requirement)
        try:
            metadata.version(name)
        except metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        yield bad("headway", f"{__version__} lacks {', '.join(missing)}", f"pip install 'headway=={__version__}'")
    else:
        yield good("headway", f"{__version__}, with all that it needs")


def _name_of(requirement: str) -> str:
    """Returns ``pyjwt`` of ``pyjwt>=2.10``."""
    end = next((at for at, char in enumerate(requirement) if not (char.isalnum() or char in "-_.")), len(requirement))
    return requirement[:end]


def _extra(extra: str, package: str, *, wanted: bool) -> Iterator[Finding]:
    install = f"pip install 'headway[{extra}]'"
    try:
        version = metadata.version(package)
    except metadata.PackageNotFoundError:
        if wanted:
            yield bad(extra, f"the config has {_TABLES[extra]}, and {package} is not installed", install)
        else:
            yield good(extra, f"not installed, and not asked for ({install})")
        return
    yield good(extra, f"{package} {version}")
    if extra == "spark":
        try:
            yield good("java", str(check_java()))
        except ConfigError as error:
            text, _, mend = str(error).rpartition(": ")
            yield bad("java", text, mend)


# -- command ----------------------------------------------------------------------------------------------------------


_SIGNS = {State.GOOD: "  ", State.DOUBTFUL: "? ", State.BAD: "! "}


@plainly
def doctor(
    config: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="The config, in TOML; without it, the default.",
                                    show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only what is doubtful or bad.")] = False,
) -> None:
    """Look at this machine and this installation: would the broker run well with this config?

    Versions of Python, Headway and its packages; Java and Spark, where they are asked for; open files, memory, disks,
    the kernel's limits for sockets; whether the ports are free. Run it as the user that the broker runs as, while
    the broker does not run: its own ports are taken otherwise. Nothing is changed.

    Exit code 2 if something is bad (!): the broker would not start, or lose what it should keep. What is doubtful (?)
    is only said.

    \b
    Examples:
      headway doctor
      headway doctor headway.toml
      headway doctor headway.toml --json | jq -r '.[] | select(.state == "bad") | .mend'
    """
    settings = load_settings(config)
    found = [*software(settings), *machine(settings)]
    if as_json:
        typer.echo(json.dumps([one._asdict() for one in found], indent=2))
    else:
        _tell([one for one in found if not quiet or one.state is not State.GOOD])
    if any(one.state is State.BAD for one in found):
        raise typer.Exit(MISTAKE)


def _tell(found: list[Finding]) -> None:
    width = max((len(one.subject) for one in found), default=0)
    for one in found:
        typer.echo(f"{_SIGNS[one.state]}{one.subject:<{width}}  {printable(one.text)}")
        if one.mend:
            typer.echo(f"  {'':<{width}}  {printable(one.mend)}")
