"""Transports of requests: whether the client is still there, and how an answer is broken off."""

from __future__ import annotations

from aiohttp import web


def is_gone(request: web.Request) -> bool:
    """Returns whether the client has closed its connection."""
    return request.transport is None or request.transport.is_closing()


def unsent_bytes(request: web.Request) -> int:
    """Returns how much of an answer our kernel has not taken yet; nothing if the client is gone."""
    return 0 if request.transport is None else request.transport.get_write_buffer_size()


def abort(request: web.Request) -> None:
    """Resets the connection, so that the client does not take what was sent for the whole."""
    if request.transport is not None:
        request.transport.abort()
