"""Health, for whatever watches the broker: ``/healthz`` answers while the loop turns, ``/readyz`` while the broker can
do its work. Both answer without a login, and tell nothing but that."""

from __future__ import annotations

from aiohttp import web

from headway.server.engine import Engine
from headway.server.http import HEALTH

_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def routes(engine: Engine) -> list[web.RouteDef]:
    async def alive(_: web.Request) -> web.Response:
        return _said(200, ["ok"])

    async def ready(_: web.Request) -> web.Response:
        reasons = engine.readiness.reasons()
        return _said(503 if reasons else 200, reasons or ["ready"])

    healthz, readyz = HEALTH
    return [web.get(healthz, alive), web.get(readyz, ready)]


def _said(status: int, lines: list[str]) -> web.Response:
    return web.Response(text="".join(f"{line}\n" for line in lines), status=status, headers=_HEADERS)
