"""The broker as an ASGI application, which a web framework mounts. It needs no library but the broker's own."""

from headway.embed.asgi.application import Application

__all__ = [
    "Application",
]
