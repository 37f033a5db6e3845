"""The admin API of an engine that has no listeners, served for as long as a test plays with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop

from headway.server.admin.api import Admin
from headway.server.config.reading import parse_settings
from headway.server.engine.engine import Engine

PATIENCE_S = 30.0
Play = Callable[[Admin], Awaitable[None]]


def serve(folder: Path, play: Play, server: str = "") -> None:
    """``server``: more lines of its table."""

    async def whole() -> None:
        settings = parse_settings(f'[server]\nadmin = "http://127.0.0.1:0"\n{server}\n[pool]\ndisk_path = "{folder}"\n')
        engine = Engine(settings, asyncio.get_running_loop())
        served = Admin(engine)
        await served.start()
        await served.listen("127.0.0.1", 0)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await play(served)
        finally:
            await served.stop()
            engine.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(whole())
