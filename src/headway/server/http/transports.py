"""Transports of requests: whether the client is still there, and how an answer is broken off."""

from __future__ import annotations

from aiohttp import web


def is_gone(request: web.Request) -> bool:
    """Returns whether the client has closed its connection."""
    return request.transport is None or request.transport.is_closing()


def abort(request: web.Request) -> None:
    """Resets the connection, so that the client does not take what was sent for the whole."""
    if request.transport is not None:
        request.transport.abort()
