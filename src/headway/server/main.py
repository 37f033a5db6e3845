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
from headway.server.admin import Admin
from headway.server.config import ADMIN_TLS, Settings, TlsContext, doubtful_certificates, load_all_tls, tls_of
from headway.server.engine import Engine, Stage
from headway.server.listener import Listener
from headway.server.log_format import begin_log, log_verdicts
from headway.server.loop import Collector, raise_file_limit
from headway.server.reloading import Reloading
from headway.server.service import Service
from headway.server.systemd import ADMIN, NotifySocket, PassedSockets
from headway.store.atomic_write import atomic_write

log = logging.getLogger("headway")

SWITCH_S = 0.0005
"""Time after which a disk thread gives the interpreter's lock to the loop. (Python's default is 5 ms.)"""


def run(settings: Settings, ready_file: Path | None = None, *, repair: bool = False) -> int:
    """Serves until SIGTERM or SIGINT; SIGHUP reloads the config. ``repair``: continue with what can be read of a
    damaged journal. Returns the exit code."""
    begin_log(settings.server.log)
    if "WATCHDOG_USEC" in os.environ:
        faulthandler.enable()  # the watchdog ends a hung broker with SIGABRT: the log shows where it hung
    raise_file_limit()
    sys.setswitchinterval(SWITCH_S)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(settings, ready_file, repair))
    except ConfigError as error:
        print(f"headway: {error}", file=sys.stderr)
        return 2
    return 0


async def _serve(settings: Settings, ready_file: Path | None, repair: bool) -> None:
    loop = asyncio.get_running_loop()
    certificates = load_all_tls(settings)
    for where, key, text in doubtful_certificates(settings):
        log.warning("%s.%s: %s", where, key, text)
    passed, notify = PassedSockets.of_environment(), NotifySocket.of_environment()
    engine = _engine(settings, loop, repair)
    if settings.server.log == "json":
        log_verdicts(engine.broker.verdicts)
    listeners = [_listener(engine, name, certificates, passed) for name in settings.listeners]
    admin = Admin(engine)
    if settings.server.admin is not None:
        address = settings.server.admin
        try:
            sock = passed.take(ADMIN, address)
            await admin.start(address.host, address.port, certificates.get(ADMIN_TLS), sock)
        except OSError as error:
            raise ConfigError(f"server.admin: cannot listen on {address}: {error.strerror}") from error
    passed.check_all_taken()
    for listener in listeners:
        listener.open()
    collector = Collector(loop)
    collector.start()
    engine.start()
    engine.pulse.start(loop)
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    service = Service(engine, notify)
    loop.add_signal_handler(signal.SIGHUP, Reloading(engine, listeners, admin, service).ask)
    _announce(listeners, admin, ready_file)
    service.ready()
    await stopped.wait()
    log.info("stopping")
    engine.readiness.stage = Stage.STOPPING
    service.stopping()
    await _drain(settings.server.drain_s, stopped)
    collector.stop()
    for listener in listeners:
        listener.close()
    await admin.stop()  # its requests need the engine, so it stops first
    engine.stop()
    await engine.lingering.end(settings.server.stop_timeout_s)
    service.close()


async def _drain(seconds: float, stopped: asyncio.Event) -> None:
    """Serves on for a while, so that whoever asks /readyz sends no new clients. A second signal ends it."""
    stopped.clear()
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stopped.wait()


def _engine(settings: Settings, loop: asyncio.AbstractEventLoop, repair: bool) -> Engine:
    try:
        return Engine(settings, loop, repair=repair)
    except OSError as error:
        path = settings.pools[""].disk_path
        text = f"pool.disk_path {path}: cannot write there ({error.strerror}); choose another, or disk = 0"
        raise ConfigError(text) from error


def _listener(engine: Engine, name: str, certificates: dict[str, TlsContext], passed: PassedSockets) -> Listener:
    table = engine.settings.listeners[name]
    try:
        return Listener(engine, name, table, certificates.get(tls_of(name)), passed.take(name, table.url))
    except OSError as error:
        raise ConfigError(f"listeners.{name}: cannot listen on {table.url}: {error.strerror}") from error


def _announce(listeners: list[Listener], admin: Admin, ready_file: Path | None) -> None:
    urls = {listener.name: listener.url for listener in listeners}
    if ready_file is not None:
        with atomic_write(ready_file) as partial:
            partial.write_text(json.dumps({"listeners": urls, "admin": admin.url, "pid": os.getpid()}))
    also = f", admin {admin.url}" if admin.url else ""
    print(f"headway {__version__} listening on {', '.join(urls.values())}{also}", flush=True)
