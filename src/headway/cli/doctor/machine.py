"""The machine: open files, memory, disks, the kernel's limits for sockets, and whether the ports are free."""

from __future__ import annotations

import errno
import getpass
import os
import resource
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

from headway.cli.doctor.finding import Finding, bad, doubtful, good
from headway.core.base import format_count, format_size
from headway.server.config import Settings, Url, host_limits, writable
from headway.server.transport import bound

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
