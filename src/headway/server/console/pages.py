"""The console's files: a page, a style and modules, which come with the package and ask nobody else for anything."""

from __future__ import annotations

from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from aiohttp import web

from headway.server.http import Refusal

FOLDER = Path(__file__).parent / "assets"
POLICY = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"
REPORT = "report.html"
REPORT_POLICY = POLICY + (
    "; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:"
)
"""A report stands in a frame of this page, and its policy holds for the report, too, which has code of its own. The
frame has no origin, so the report gets nothing from the broker; its own policy lets it ask nobody."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin", "Cache-Control": "no-cache",
}  # fmt: skip
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
START = "console.html"


class Page(NamedTuple):
    body: bytes
    type: str
    tag: str


@cache
def pages() -> dict[str, Page]:
    """Returns the files by name."""
    found = {}
    for path in sorted(FOLDER.iterdir()):
        body = path.read_bytes()
        found[path.name] = Page(body, TYPES[path.suffix], f'"{blake2b(body, digest_size=8).hexdigest()}"')
    return found


async def _start(request: web.Request) -> web.Response:
    return _answer(request, START)


async def _file(request: web.Request) -> web.Response:
    return _answer(request, request.match_info["name"])


def _answer(request: web.Request, name: str) -> web.Response:
    page = pages().get(name)
    if page is None:
        raise Refusal(404, "the console has no such file; it begins at /")
    headers = {**HEADERS, "ETag": page.tag}
    if name == REPORT:
        headers["Content-Security-Policy"] = REPORT_POLICY
    if request.headers.get("If-None-Match") == page.tag:
        return web.Response(status=304, headers=headers)
    return web.Response(body=page.body, content_type=page.type, charset="utf-8", headers=headers)


def routes() -> list[web.RouteDef]:
    return [web.get("/", _start), web.get("/console/{name}", _file)]
