"""A program with a broker in it, in a process of its own: ``main FOLDER END`` ends as it is told."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from headway.embed import Broker


def main() -> None:
    folder, end = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the shell may have had it ignored
    asyncio.run(live(folder, end))


async def live(folder: str, end: str) -> None:
    broker = Broker({
        "journal": {"path": folder}, "pool": {"disk_path": f"{folder}-spill"},
        "topic": [{"filter": "kept/#", "keep": "1h"}], "listeners": {"mqtt": {"url": "mqtt://127.0.0.1:0"}},
    })  # fmt: skip
    if end == "forgets":
        await broker.start()
        await work(broker, end)
        return
    async with broker:
        await work(broker, end)


async def work(broker: Broker, end: str) -> None:
    await broker.publish("kept/1", end)
    await broker.publish("kept/2", "unconfirmed", confirm=False)
    match end:
        case "raises":
            raise ValueError("of the program")
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exits":
            sys.exit(3)
        case "interrupted":
            os.kill(os.getpid(), signal.SIGINT)
            await for_ever(broker)
        case "cancelled":
            task = asyncio.current_task()
            assert task is not None
            asyncio.get_running_loop().call_soon(task.cancel)
            await for_ever(broker)


async def for_ever(broker: Broker) -> None:
    async for _ in broker.subscribe("none"):
        pass
