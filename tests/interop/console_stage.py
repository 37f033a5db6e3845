"""What tests of the console share: a broker with a client that reads nothing, a page to look at it, and its moves."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.wires.packets import encode_publish
from tests.interop.chromium import Page, chromium
from tests.interop.conftest import BrokerFactory
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw
from tests.interop.waiting import PATIENCE_S, until

CONFIG = """
[[policy]]
name = "desk"
topics = ["desk/#"]
[[policy.rule]]
name = "does not read"
when = { blocked_time = "200ms" }
then = "notify"
[[policy.rule]]
name = "too late"
when = { lag_age = "10m" }
then = "disconnect"

[[topic]]
filter = "desk/#"
key = "topic"
"""
USERS = """
[auth.users]
ann = "{ann}"
bob = "{bob}"
[auth.admin]
read = ["ann", "bob"]
change = ["ann"]
"""
Story = Callable[[Page], Awaitable[None]]


@pytest.fixture(scope="module")
def house(start: BrokerFactory) -> BrokerProcess:
    return start(CONFIG, server={"send_buffer": "16KiB"})


@pytest.fixture
def slow(house: BrokerProcess, name: str) -> Iterator[Raw]:
    """A client that reads nothing, and for which a rule has fired."""
    client = stuck(house, f"slow-{name}", f"desk/{name}")
    yield client
    client.close()


def stuck(house: BrokerProcess, name: str, topic: str, **login: Any) -> Raw:
    client = Raw(house.port, name, receive_buffer=4096, **login)
    client.subscribe(topic)
    with Raw(house.port, **login) as publisher:
        for _ in range(200):
            publisher.send(encode_publish(topic, b"x" * 2000, version=5))
    until(lambda: house.verdicts(name), what="a verdict")
    return client


def look(tmp_path: Path, story: Story) -> None:
    async def whole() -> None:
        async with chromium(tmp_path) as page:
            await page.size(1600, 1000)
            await story(page)

    asyncio.run(whole())


def row_of(client: str) -> str:
    return f"[...document.querySelectorAll('table.board tr')].find((row) => row.textContent.includes({client!r}))"


async def sign_in(page: Page, user: str, password: str) -> None:
    """With the keyboard alone. The field of the name has the focus."""
    await page.until("document.activeElement?.id === 'user'")
    for name, text in (("user", user), ("password", password)):
        if name != "user":
            await page.press("Tab")
        await page.value(f"document.querySelector('#{name}').select()")
        await page.do("Input.insertText", text=text)
    await page.press("Enter")


def move(house: BrokerProcess, **wanted: str) -> tuple[int, dict[str, str]]:
    request = urllib.request.Request(
        f"{house.admin}/v1/moves", json.dumps(wanted).encode(), {"Content-Type": "application/json"}, method="POST"
    )
    if house.login:
        request.add_header("Authorization", house.basic)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)
