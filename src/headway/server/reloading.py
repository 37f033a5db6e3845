"""Reloading: reads the config again (SIGHUP), and puts in force what has changed and needs no restart.

Theory of operation. A worker thread reads and checks the file, so the loop does not wait for it. What is asked for
meanwhile is one more reading afterwards, however often it was asked. Then each section that has changed is put in force
at once, and one that has not costs nothing. What changes for every client or consumer is done over the turns to come
(``core/routing/registry.py``).
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from headway.core.base import ConfigError
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
from headway.server.logins import Logins, PreparedLogins
from headway.server.service import Service

if TYPE_CHECKING:
    from headway.server.admin import Admin

log = logging.getLogger("headway")

LATER = ("server", "listeners", "flap", "retained", "telemetry", "traces", "journal", "history")
"""Tables that take effect at the next start."""


class Reloading:
    def __init__(self, engine: Engine, listeners: list[Listener], admin: Admin | None, service: Service) -> None:
        self._engine = engine
        self._listeners = listeners
        self._admin = admin
        self._service = service
        self._asked = self._reading = False

    def ask(self) -> None:
        """Reads the file soon, or once more if it is being read."""
        self._service.reloading()
        if self._engine.settings.source is None:
            self._service.reloaded()
            log.info("reload: there is no file to read: the broker runs without --config")
            return
        self._asked = True
        if not self._reading:
            self._reading = True
            self._engine.spawn(self._read())

    async def _read(self) -> None:
        engine, remark = self._engine, ""
        try:
            while self._asked:
                self._asked, remark = False, ""
                try:
                    read = await engine.loop.run_in_executor(None, _load, engine.settings, engine.logins)
                    self._take(*read)
                except (ConfigError, OSError) as error:
                    log.error("reload: nothing was changed: %s", error)
                    remark = str(error)
        finally:
            self._reading = False
            self._service.reloaded(remark)

    def _take(
        self, fresh: Settings, certificates: dict[str, TlsContext], logins: PreparedLogins, doubts: list[str]
    ) -> None:
        """Puts new settings in force, and certificates for new connections; the log names what needs a restart."""
        engine, now = self._engine, self._engine.now()
        engine.logins.reload(logins)
        old = with_tls_of(fresh, engine.settings)
        engine.settings = replace(
            old, policies=fresh.policies, trials=fresh.trials, auth=fresh.auth, permissions=fresh.permissions,
            limits=fresh.limits,
        )  # fmt: skip
        for listener in self._listeners:
            listener.renew(certificates.get(tls_of(listener.name)))
        if self._admin is not None:
            self._admin.renew(certificates.get(ADMIN_TLS))
        for doubt in doubts:
            log.warning("%s", doubt)
        engine.permissions.reload(engine.settings, now)
        engine.take_limits()
        engine.broker.declare_states([topic.terms for topic in fresh.keyed], now)
        engine.broker.set_policies(fresh.policies, now, fresh.trials)
        if engine.telemetry is not None:
            engine.telemetry.configured(engine.settings, fresh.policies_text)
        later = _later(old, fresh)
        wait = f"; effective only after a restart: {', '.join(later)}" if later else ""
        log.info("reload: %d policies, %d users and %d permissions are in force%s", len(fresh.policies),
                 len(fresh.auth.users), len(fresh.permissions), wait)
        engine.turn_soon()


def _later(old: Settings, fresh: Settings) -> list[str]:
    """Returns what is different in a file and takes effect at the next start."""
    later = [f"[{table}]" for table in LATER if getattr(fresh, table) != getattr(old, table)]
    if (old.pools, old.shares) != (fresh.pools, fresh.shares):
        later.append("[pool]")
    if not {topic.filter for topic in old.topics} <= {topic.filter for topic in fresh.topics}:
        later.append("removed [[topic]] tables")
    later += [f"[[topic]] {key}" for key in ("keep", "pool", "priority") if _said(old, key) != _said(fresh, key)]
    return later


def _load(running: Settings, logins: Logins) -> tuple[Settings, dict[str, TlsContext], PreparedLogins, list[str]]:
    """Reads the file, the certificates and keys that it names, and what is doubtful about these. Runs in a worker
    thread. Raises ConfigError, OSError."""
    fresh = load_settings(running.source)
    _refuse_cut(running, fresh)
    doubts = [f"{where}.{key}: {text}" for where, key, text in doubtful_certificates(fresh)]
    return fresh, load_all_tls(fresh), logins.prepared(fresh.auth), doubts


def _refuse_cut(running: Settings, fresh: Settings) -> None:
    """Raises ConfigError if the file no longer has what protects the broker, or nothing of what runs: it may be read
    while an editor writes it, and an empty file is a valid config."""
    gone = [
        what
        for what, was, still in (
            ("users", running.auth.checks_names, fresh.auth.checks_names),
            ("tokens", running.auth.asks and not running.auth.checks_names, fresh.auth.asks),
            ("[[permission]] tables", running.permissions, fresh.permissions),
            ("listeners that run", running.listeners, running.listeners.keys() & fresh.listeners.keys()),
            ("[journal]", running.journal.enabled, fresh.journal.enabled),
        )
        if was and not still
    ]
    if gone:
        raise ConfigError(
            f"{running.source}: has no {' and no '.join(gone)} any more, and the running broker has; if the file was "
            "being written, reload again; if that is what you want, restart the broker"
        )


def _said(settings: Settings, key: str) -> dict[str, object]:
    return {topic.filter: getattr(topic, key) for topic in settings.topics if getattr(topic, key)}
