"""The admin API: JSON for ``headway top`` and ``headway why``, metrics for Prometheus. Loopback only, no login."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

import msgspec
from aiohttp import web

from headway import __version__
from headway.core import stats
from headway.core.errors import ConfigError, Reason
from headway.core.policy import PolicyState, evaluate
from headway.core.sampling import peek
from headway.core.verdict import explain
from headway.server.config import parse_settings
from headway.server.cursors import Cursors
from headway.server.engine import Engine
from headway.server.metrics import Metrics
from headway.server.process import memory_peak_bytes, memory_rss_bytes
from headway.server.records import Records
from headway.server.sockets import bound
from headway.server.writers import Writers

CONFIG_BYTES_MAX = 4 * 1024 * 1024
LAST_ANSWERS_S = 0.1
"""At the end, for answers that are under way. Some wait by design, and clients are not to wait for these."""


@web.middleware
async def _from_here_only(request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
                          ) -> web.StreamResponse:
    """A web page somewhere else may not make its reader's browser talk to us (DNS rebinding, forms)."""
    host = urlsplit(f"//{request.host}").hostname or ""
    if host not in ("localhost", "127.0.0.1", "::1") or "Origin" in request.headers:
        return _json({"error": "the admin API answers this machine only"}, 403)
    return await handler(request)


class Admin:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._metrics = Metrics(engine)
        self._app = web.Application(client_max_size=CONFIG_BYTES_MAX, middlewares=[_from_here_only])
        self._app.add_routes([
            web.get("/v1/broker", self._broker),
            web.get("/v1/consumers", self._consumers),
            web.get("/v1/publishers", self._publishers),
            web.get("/v1/queues", self._queues),
            web.get(r"/v1/why/{client:[\s\S]+}", self._why),
            web.post("/v1/preview", self._preview),
            web.delete(r"/v1/clients/{client:[\s\S]+}", self._disconnect),
            web.get("/metrics", self._page),
        ])  # fmt: skip
        self._records = Records(engine)
        self._cursors = Cursors(engine)
        self._writers = Writers(engine)
        self._app.add_routes([*self._records.routes(), *self._cursors.routes(), *self._writers.routes()])
        self._runner = web.AppRunner(self._app, access_log=None, shutdown_timeout=LAST_ANSWERS_S)
        self.url = ""

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises OSError when the address cannot be had."""
        await self._runner.setup()
        await web.SockSite(self._runner, bound(host, port)).start()
        here = self._runner.addresses[0]
        self._writers.start()
        self.url = f"http://[{here[0]}]:{here[1]}" if ":" in here[0] else f"http://{here[0]}:{here[1]}"

    async def stop(self) -> None:
        await self._runner.cleanup()
        self._records.close()
        self._cursors.close()
        await self._writers.close()

    async def _broker(self, _: web.Request) -> web.Response:
        engine = self._engine
        body = msgspec.to_builtins(stats.whole(engine.broker))
        body |= {
            "version": __version__, "name": engine.settings.server.name,
            "uptime_s": round(engine.now() - engine.started_s, 3), "wall_s": time.time(),
            "connections": len(engine.connections), "memory_rss_bytes": memory_rss_bytes(),
            "memory_peak_bytes": memory_peak_bytes(), "longest_turn_ms": round(engine.longest_turn_s * 1000, 3),
            "connections_refused": engine.connections_refused, "protocol_errors": engine.protocol_errors,
        }  # fmt: skip
        telemetry = engine.telemetry
        if telemetry is not None:
            body["telemetry"] = {
                "run": telemetry.lake.run, "path": str(telemetry.lake.folder), "lake_bytes": telemetry.lake.bytes,
                "written_rows": telemetry.written_rows, "dropped_rows": telemetry.dropped_rows,
                "last_error": telemetry.last_error,
            }  # fmt: skip
        if engine.keeper is not None:
            body["journal"] = engine.keeper.stats()
        return _json(body)

    async def _consumers(self, _: web.Request) -> web.Response:
        return _json({"consumers": stats.consumers(self._engine.broker, self._engine.now())})

    async def _publishers(self, _: web.Request) -> web.Response:
        return _json({"publishers": stats.publishers(self._engine.broker, self._engine.now())})

    async def _queues(self, _: web.Request) -> web.Response:
        return _json({"queues": stats.queues(self._engine.broker, self._engine.now())})

    async def _why(self, request: web.Request) -> web.Response:
        client, broker = request.match_info["client"], self._engine.broker
        verdicts = broker.verdicts.of(client)
        session = broker.registry.sessions.get(client)
        ends = self._engine.ends.of(client)
        if not verdicts and not ends and session is None:
            return _json({"error": f"nothing is known of a client {client!r}"}, 404)
        return _json({
            "client": client,
            "connected": session is not None and session.outlet is not None,
            "readmitted_in_s": round(broker.flap.wait_s(client, self._engine.now()), 1),
            "verdicts": list(reversed(verdicts)),
            "ends": ends,
        })  # fmt: skip

    async def _preview(self, request: web.Request) -> web.Response:
        """Whom would this configuration hit, as things stand now, were every window already over?"""
        try:
            settings = parse_settings(await request.text())
        except ConfigError as error:
            return _json({"error": str(error)}, 400)
        engine, hits, looked = self._engine, [], 0
        registry, now = engine.broker.registry, engine.now()
        for session in registry.sessions.values():
            for subscription in session.subscriptions.values():
                looked += 1
                filter = subscription.feed.key.filter
                policy = registry.policy_of(subscription, settings.policies)
                sample = peek(registry, subscription, now, {})
                instant = msgspec.structs.replace(
                    policy, rules=tuple(msgspec.structs.replace(r, for_s=0.0, retries=0, times=1) for r in policy.rules)
                )
                for decision in evaluate(instant, PolicyState(instant), sample, now):
                    text = explain(decision, sample, client=session.client, filter=filter, policy=policy.name)
                    hits.append({"client": session.client, "filter": subscription.filter, "policy": policy.name,
                                 "rule": decision.rule + 1, "text": text})  # fmt: skip
        return _json({"hits": hits, "consumers": looked})

    async def _disconnect(self, request: web.Request) -> web.Response:
        client, engine = request.match_info["client"], self._engine
        session = engine.broker.registry.sessions.get(client)
        if session is None or session.outlet is None:
            return _json({"error": f"no client {client!r} is connected"}, 404)
        engine.broker.expel(session, Reason.ADMIN, "disconnected by an operator", engine.now())
        engine.turn_soon()
        return web.Response(status=204)

    async def _page(self, _: web.Request) -> web.Response:
        return web.Response(body=self._metrics.page(), content_type="text/plain", charset="utf-8")


def _json(body: Any, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")
