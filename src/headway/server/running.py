"""A broker that runs on a loop: its engine, its listeners and its admin API. It starts and stops with whoever has it:
``headway serve`` (main.py), or a program that it is part of (``headway.embed``).

Rule: nothing here is of the process. Signals, the log's format, the limit of open files, garbage collection, the kind
of loop and the interpreter's settings are their owner's; ``main.py`` sets them for ``serve``. So there may be several
of these in one process, each on its own loop or all on one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from headway.core.base import ConfigError
from headway.server.config import ADMIN_TLS, Settings, TlsContext, doubtful_certificates, load_all_tls, tls_of
from headway.server.engine import Engine
from headway.server.listener import Listener
from headway.server.systemd import ADMIN, PassedSockets

if TYPE_CHECKING:
    from headway.server.admin import Admin

log = logging.getLogger("headway")


class Running:
    """``passed``: sockets that listen already. ``repair``: continue with what can be read of a damaged journal. Raises
    ConfigError, OSError."""

    def __init__(
        self, settings: Settings, loop: asyncio.AbstractEventLoop, passed: PassedSockets | None = None, *,
        repair: bool = False,
    ) -> None:  # fmt: skip
        self._certificates = load_all_tls(settings)
        for where, key, text in doubtful_certificates(settings):
            log.warning("%s.%s: %s", where, key, text)
        self._loop = loop
        self._passed = passed or PassedSockets()
        self.engine = _engine(settings, loop, repair)
        self.listeners: list[Listener] = []
        self.admin: Admin | None = None
        """The admin API; None: the config has none, and what it takes is not loaded."""

    @property
    def urls(self) -> dict[str, str]:
        """The addresses of all listeners, by name, with the ports that were free where the config asks for any."""
        return {listener.name: listener.url for listener in self.listeners}

    @property
    def admin_url(self) -> str:
        return "" if self.admin is None else self.admin.url

    async def start(self, before_work: Callable[[], None] = lambda: None) -> None:
        """Opens all ports, and begins. ``before_work`` is called when they listen. Raises ConfigError; nothing is left
        of it then."""
        try:
            for name in self.engine.settings.ports:
                self.listeners.append(_listener(self.engine, name, self._certificates, self._passed))
            await self._start_admin()
            self._passed.check_all_taken()
        except BaseException:
            await self.stop()
            raise
        for listener in self.listeners:
            listener.open()
        before_work()
        self.engine.start()
        self.engine.pulse.start(self._loop)

    async def _start_admin(self) -> None:
        settings = self.engine.settings
        address = settings.server.admin
        if address is None and not settings.embedded:
            return
        from headway.server.admin import Admin  # with aiohttp, a quarter of what a broker loads

        self.admin = Admin(self.engine)
        await self.admin.start()
        if address is not None:
            try:
                sock = self._passed.take(ADMIN, address)
                await self.admin.listen(address.host, address.port, self._certificates.get(ADMIN_TLS), sock)
            except OSError as error:
                raise ConfigError(f"server.admin: cannot listen on {address}: {error.strerror}") from error

    async def stop(self) -> None:
        """Closes all connections, the journal and all files. Clients have ``stop_timeout`` to read their last words.
        If this is cancelled, the journal is closed all the same."""
        for listener in self.listeners:
            listener.close()
        try:
            if self.admin is not None:
                await self.admin.stop()  # its requests need the engine, so it stops first
        finally:
            self.engine.stop()
        lingering, traces = self.engine.lingering.end(self.engine.settings.server.stop_timeout_s), self.engine.traces
        await (lingering if traces is None else asyncio.gather(lingering, traces.ended()))


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
