"""A raw MQTT client in a WebSocket."""

from __future__ import annotations

from typing import ClassVar

from bench.wires.websocket import DEFLATE, Frames, frame, upgrade
from tests.interop.raw import Raw


class WebRaw(Raw):
    offers: ClassVar[tuple[str, ...]] = ()
    """Headers of the request."""
    frames: Frames

    def opened(self, port: int) -> None:
        self.frames = Frames(upgrade(self.sock, "/mqtt", f"127.0.0.1:{port}", "mqtt", *self.offers))

    def send(self, data: bytes) -> None:
        self.sock.sendall(frame(data))

    def unwrapped(self, data: bytes) -> bytes:
        self.frames.feed(data)
        return self.frames.take()

    @property
    def closed(self) -> tuple[int, str] | None:
        """Code and reason of the broker's Close."""
        return self.frames.closed


class DeflatedRaw(WebRaw):
    """Takes compressed messages."""

    offers = (DEFLATE,)
