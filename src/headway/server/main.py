"""The server's main: starts a loop with the settings, and serves until a signal stops it."""

from __future__ import annotations

import asyncio
import faulthandler
import json
import logging
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import uvloop

from headway import __version__
from headway.core.base import ConfigError
from headway.server.config import Settings
from headway.server.engine import Stage
from headway.server.log_format import begin_log, log_verdicts
from headway.server.loop import Collector, FreeMemory, raise_file_limit
from headway.server.reloading import Reloading
from headway.server.running import Running
from headway.server.service import Service
from headway.server.systemd import NotifySocket, PassedSockets
from headway.store.atomic_write import atomic_write

log = logging.getLogger("headway")

SWITCH_S = 0.0001
"""Time after which a disk thread gives the interpreter's lock to the loop, or the loop to it. (Python's default is
5 ms.) The loop may wait so long after each call of the system; a journal's thread that is to confirm waits as well."""


def run(settings: Settings, ready_file: Path | None = None, *, repair: bool = False) -> int:
    """Serves until SIGTERM or SIGINT; SIGHUP reloads the config. ``repair``: continue with what can be read of a
    damaged journal. Returns the exit code."""
    hangups: set[int] = set()
    _handle_signals_of_the_start(hangups)
    begin_log(settings.server.log)
    if "WATCHDOG_USEC" in os.environ:
        faulthandler.enable()  # the watchdog ends a hung broker with SIGABRT: the log shows where it hung
    raise_file_limit()
    sys.setswitchinterval(SWITCH_S)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(settings, ready_file, repair, hangups))
    except ConfigError as error:
        print(f"headway: {error}", file=sys.stderr)
        return 2
    return 0


def _handle_signals_of_the_start(hangups: set[int]) -> None:
    """Handles signals until the loop does. By default SIGHUP and SIGUSR1 would kill a broker that is still reading its
    journal, or has just opened its ports. ``hangups`` gets SIGHUP if it comes; then the config is read again after the
    start."""
    signal.signal(signal.SIGHUP, lambda number, _: hangups.add(number))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end_start)
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)


def _end_start(number: int, _: object) -> None:
    """Ends a start at once, as a long one should not be waited for. The journal is as after a crash."""
    log.info("stopped before it served")
    raise SystemExit(0)


async def _serve(settings: Settings, ready_file: Path | None, repair: bool, hangups: set[int]) -> None:
    loop = asyncio.get_running_loop()
    passed, notify = PassedSockets.of_environment(), NotifySocket.of_environment()
    running = Running(settings, loop, passed, repair=repair)
    engine = running.engine
    if settings.server.log == "json":
        log_verdicts(engine.broker.verdicts)
    collector = Collector(loop)
    pools = engine.broker.registry.distinct_pools()
    free_memory = FreeMemory(loop, lambda: sum(pool.memory_bytes + pool.clients_bytes for pool in pools), engine.pulse)
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    loop.add_signal_handler(signal.SIGHUP, hangups.add, signal.SIGHUP)
    await running.start(collector.start)
    free_memory.start()
    service = Service(engine, notify)
    reloading = Reloading(engine, running.listeners, running.admin, service)
    loop.add_signal_handler(signal.SIGHUP, reloading.ask)
    _announce(running, ready_file)
    service.ready()
    if hangups:
        reloading.ask()
    await stopped.wait()
    loop.add_signal_handler(signal.SIGHUP, hangups.add, signal.SIGHUP)  # there is nothing to reload any more
    log.info("stopping")
    engine.readiness.stage = Stage.STOPPING
    service.stopping()
    await _drain(settings.server.drain_s, stopped)
    free_memory.stop()
    collector.stop()
    await running.stop()
    service.close()


async def _drain(seconds: float, stopped: asyncio.Event) -> None:
    """Serves on for a while, so that whoever asks /readyz sends no new clients. A second signal ends it."""
    stopped.clear()
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stopped.wait()


def _announce(running: Running, ready_file: Path | None) -> None:
    admin = running.admin_url
    if ready_file is not None:
        with atomic_write(ready_file) as partial:
            partial.write_text(json.dumps({"listeners": running.urls, "admin": admin, "pid": os.getpid()}))
    also = f", admin {admin}" if admin else ""
    print(f"headway {__version__} listening on {', '.join(running.urls.values())}{also}", flush=True)
