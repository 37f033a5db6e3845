"""The JavaScript client: modules that pages load from the broker, so that a page needs nothing else. They are the same
for everybody and tell nothing of this broker, so anybody may have them, without a login."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from aiohttp import web

import headway
from headway.server.http import PUBLIC, Refusal

FOLDER = Path(headway.__file__).parent / "client" / "javascript"
_HEADERS = {
    "Access-Control-Allow-Origin": "*", "Cache-Control": "max-age=300", "X-Content-Type-Options": "nosniff",
}  # fmt: skip


@cache
def _modules() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in FOLDER.glob("*.js")}


async def _module(request: web.Request) -> web.Response:
    body = _modules().get(request.match_info["name"])
    if body is None:
        raise Refusal(404, f"there is no such module; the one to import is {PUBLIC}headway-view.js")
    return web.Response(body=body, content_type="text/javascript", charset="utf-8", headers=_HEADERS)


def routes() -> list[web.RouteDef]:
    return [web.get(f"{PUBLIC}{{name}}", _module)]
