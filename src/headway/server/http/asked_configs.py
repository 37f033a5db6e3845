"""Configs that are asked about: whom would their policies hit?

Theory of operation. Who may only look may ask, and with any text. So a config is read in a thread, as at a reload,
while the loop goes on; and one question is answered after the other, so that very many take no more than one of them.
The files that it names stay closed: their errors would tell what is in them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from aiohttp import web

from headway.core.base import ConfigError
from headway.core.policy import Policy
from headway.server.config import parse_settings
from headway.server.http.bodies import Refusal, read_text
from headway.server.http.seats import Seats

TEXT_BYTES_MAX = 1024 * 1024
WAITING_MAX = 16


class AskedConfigs:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._turn = asyncio.Lock()
        self._seats = Seats(WAITING_MAX, "configs are being asked about")

    @asynccontextmanager
    async def policies(self, request: web.Request) -> AsyncIterator[tuple[Policy, ...]]:
        """Yields the policies of the config in a request, when it is its turn, which ends with the block. Raises
        Refusal."""
        with self._seats.seat():
            text = await read_text(request, TEXT_BYTES_MAX)
            async with self._turn:
                try:
                    settings = await self._loop.run_in_executor(None, partial(parse_settings, text, reads_files=False))
                except ConfigError as error:
                    raise Refusal(400, str(error)) from None
                yield settings.policies
