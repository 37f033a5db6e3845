"""A wire between clients and a broker, which can be cut, stalled, and led to another broker."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Self


class WireBetween:
    def __init__(self, target_port: int) -> None:
        self.target_port = target_port
        self.port = 0
        self.accepted = 0
        self.flows = asyncio.Event()
        self.flows.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=4096)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.flows.set()
        self.cut()

    def cut(self) -> None:
        for writer in self._writers:
            writer.close()

    async def _serve(self, near_in: asyncio.StreamReader, near_out: asyncio.StreamWriter) -> None:
        self.accepted += 1
        try:
            far_in, far_out = await asyncio.open_connection("127.0.0.1", self.target_port, limit=4096)
        except OSError:
            near_out.close()
            return
        self._writers |= {near_out, far_out}
        await asyncio.gather(self._flow(near_in, far_out), self._flow(far_in, near_out))

    async def _flow(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(4096):
                await self.flows.wait()
                sink.write(data)
                await sink.drain()
        sink.close()
        self._writers.discard(sink)
