"""A FastAPI program with a broker in it, and a page that shows what the program publishes. docs/EMBED.md explains it.

    pip install headway fastapi 'uvicorn[standard]'
    uvicorn examples.embed.app:app          and open http://127.0.0.1:8000
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse

from headway.embed import Broker

broker = Broker({"topic": [{"filter": "prices/#", "key": "topic"}]}, name="shop")


async def quote() -> None:
    """Publishes prices for ever. Where a policy holds back publishers, it waits here."""
    while True:
        symbol = random.choice("ABCDEFGH")
        await broker.publish(f"prices/{symbol}", {"symbol": symbol, "price": round(random.uniform(1, 99), 2)})
        await asyncio.sleep(0.01)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with broker, asyncio.TaskGroup() as tasks:
        quoting = tasks.create_task(quote())
        yield
        quoting.cancel()


app = FastAPI(lifespan=lifespan)
app.mount("/headway", broker.asgi())


@app.get("/")
def page() -> FileResponse:
    return FileResponse(Path(__file__).with_name("page.html"))
