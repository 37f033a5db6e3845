"""The server's main: starts a loop with the settings, and serves until a signal stops it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import uvloop

from headway import __version__
from headway.core.base import ConfigError
from headway.server.admin import Admin
from headway.server.config import (
    ADMIN_TLS,
    Settings,
    TlsContext,
    doubtful_certificates,
    load_all_tls,
    load_settings,
    tls_of,
    with_tls_of,
)
from headway.server.engine import Engine
from headway.server.listener import Listener
from headway.server.loop import Collector, raise_file_limit
from headway.store.atomic_write import atomic_write

log = logging.getLogger("headway")

SWITCH_S = 0.0005
"""Time after which a disk thread gives the interpreter's lock to the loop. (Python's default is 5 ms.)"""


def run(settings: Settings, ready_file: Path | None = None, *, repair: bool = False) -> int:
    """Serves until SIGTERM or SIGINT; SIGHUP reloads the config. ``repair``: continue with what can be read of a
    damaged journal. Returns the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)
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
    engine = _engine(settings, loop, repair)
    listeners = [_listener(engine, name, certificates) for name in settings.listeners]
    admin = Admin(engine)
    if settings.server.admin is not None:
        address = settings.server.admin
        try:
            await admin.start(address.host, address.port, certificates.get(ADMIN_TLS))
        except OSError as error:
            raise ConfigError(f"server.admin: cannot listen on {address}: {error.strerror}") from error
    for listener in listeners:
        listener.open()
    collector = Collector(loop)
    collector.start()
    engine.start()
    engine.pulse.start(loop)
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    loop.add_signal_handler(signal.SIGHUP, _reload, engine, listeners, admin)
    _announce(listeners, admin, ready_file)
    await stopped.wait()
    log.info("stopping")
    collector.stop()
    for listener in listeners:
        listener.close()
    await admin.stop()  # its requests need the engine, so it stops first
    engine.stop()
    await engine.lingering.end(settings.server.stop_timeout_s)


def _engine(settings: Settings, loop: asyncio.AbstractEventLoop, repair: bool) -> Engine:
    try:
        return Engine(settings, loop, repair=repair)
    except OSError as error:
        path = settings.pools[""].disk_path
        text = f"pool.disk_path {path}: cannot write there ({error.strerror}); choose another, or disk = 0"
        raise ConfigError(text) from error


def _listener(engine: Engine, name: str, certificates: dict[str, TlsContext]) -> Listener:
    table = engine.settings.listeners[name]
    try:
        return Listener(engine, name, table, certificates.get(tls_of(name)))
    except OSError as error:
        raise ConfigError(f"listeners.{name}: cannot listen on {table.url}: {error.strerror}") from error


def _announce(listeners: list[Listener], admin: Admin, ready_file: Path | None) -> None:
    urls = {listener.name: listener.url for listener in listeners}
    if ready_file is not None:
        with atomic_write(ready_file) as partial:
            partial.write_text(json.dumps({"listeners": urls, "admin": admin.url, "pid": os.getpid()}))
    also = f", admin {admin.url}" if admin.url else ""
    print(f"headway {__version__} listening on {', '.join(urls.values())}{also}", flush=True)


def _reload(engine: Engine, listeners: list[Listener], admin: Admin) -> None:
    """Reloads the config (SIGHUP). Policies, keyed topics, users, permissions, and certificates of new connections
    change at once; the log names what needs a restart."""
    source = engine.settings.source
    if source is None:
        log.info("reload: there is no file to read, the embedded default is in use")
        return
    try:
        fresh = load_settings(source)
        certificates = load_all_tls(fresh)
        engine.logins.reload(fresh.auth)
    except (ConfigError, OSError) as error:
        log.error("reload: nothing was changed: %s", error)
        return
    old = with_tls_of(fresh, engine.settings)
    engine.settings = replace(
        old, policies=fresh.policies, trials=fresh.trials, auth=fresh.auth, permissions=fresh.permissions,
        limits=fresh.limits,
    )
    for listener in listeners:
        listener.renew(certificates.get(tls_of(listener.name)))
    admin.renew(certificates.get(ADMIN_TLS))
    for where, key, text in doubtful_certificates(fresh):
        log.warning("%s.%s: %s", where, key, text)
    for topic in fresh.topics:
        engine.broker.declare_state(topic.filter, topic.key.text)
    engine.broker.set_policies(fresh.policies, engine.now(), fresh.trials)
    engine.permissions.reload(engine.settings, engine.now())
    engine.take_limits()
    if engine.telemetry is not None:
        engine.telemetry.configured(engine.settings, fresh.policies_text)
    later = [
        f"[{table}]" for table in ("server", "listeners", "pools", "flap", "retained", "telemetry", "journal",
                                       "history")
        if getattr(fresh, table) != getattr(old, table)
    ]  # fmt: skip
    if not {topic.filter for topic in old.topics} <= {topic.filter for topic in fresh.topics}:
        later.append("removed [[topic]] tables")
    if {topic.filter: topic.keep for topic in old.topics if topic.keep} != {
        topic.filter: topic.keep for topic in fresh.topics if topic.keep
    }:  # fmt: skip
        later.append("[[topic]] keep")
    wait = f"; effective only after a restart: {', '.join(later)}" if later else ""
    log.info("reload: %d policies, %d users and %d permissions are in force%s", len(fresh.policies),
             len(fresh.auth.users), len(fresh.permissions), wait)
    engine.turn_soon()
