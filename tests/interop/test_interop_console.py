"""The console in Chromium: a slow client is seen with its cause, and what a page may not do it does not."""

from __future__ import annotations

import asyncio
import socket
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from bench.wires.packets import encode_publish
from tests.interop.chromium import CHROMIUM, Page, chromium
from tests.interop.conftest import BrokerFactory
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw
from tests.interop.waiting import until

BYTES_MAX = 300_000
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
Story = Callable[[Page], Awaitable[None]]
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install -y chromium-headless-shell")


@pytest.fixture(scope="module")
def house(start: BrokerFactory) -> BrokerProcess:
    return start(CONFIG, server={"send_buffer": "16KiB"})


@pytest.fixture
def slow(house: BrokerProcess, name: str) -> Iterator[Raw]:
    """A client that reads nothing, and for which a rule has fired."""
    client = stuck(house, f"slow-{name}", f"desk/{name}")
    yield client
    client.close()


def stuck(house: BrokerProcess, name: str, topic: str) -> Raw:
    client = Raw(house.port, name, receive_buffer=4096)
    client.subscribe(topic)
    with Raw(house.port) as publisher:
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


def test_a_slow_client_is_on_the_board_with_its_cause(
    house: BrokerProcess, slow: Raw, name: str, tmp_path: Path
) -> None:
    async def story(page: Page) -> None:
        await page.open(f"{house.admin}/")
        row = row_of(f"slow-{name}")
        await page.until(f"{row}?.textContent.includes('slow')")
        text = await page.value(f"{row}.innerText")
        assert "application" in text
        assert "does not read" in text or "receive window is closed" in text
        assert "reported" in text, "what was done"
        assert await page.value(f"{row}.querySelector('.cursor').style.right") != "0%", "the mark is away from the end"
        assert await page.value("document.querySelector('h1').textContent") != "Looking …"
        await page.until("document.querySelector('#link').textContent === 'live'")
        assert page.complaints == []
        hosts = {urlsplit(url).netloc for url in page.urls if not url.startswith(("about:", "data:"))}
        assert hosts == {urlsplit(house.admin).netloc}, "nothing is asked of anybody else"
        files = {url: size for url, size in page.received.items() if "/v1/" not in url}
        assert len(files) > 5
        assert sum(files.values()) < BYTES_MAX
        (one,) = house.get("/v1/broker")["console"]["consoles"]
        assert one["frames"] >= 1

    look(tmp_path, story)


HOSTILE = (
    "<img src=x onerror=\"document.title='caught'\">", "</td><script>document.title='caught'</script>",
    "\u202ecod.exe\u200f", "&amp;&lt;b>", "x" * 1000,
)  # fmt: skip


def test_names_are_text_whatever_is_in_them(house: BrokerProcess, tmp_path: Path) -> None:
    clients = [stuck(house, f"{number}{name}", f"desk/hostile/{number}") for number, name in enumerate(HOSTILE)]

    async def story(page: Page) -> None:
        await page.open(f"{house.admin}/")
        for number in range(len(HOSTILE)):
            await page.until(row_of(f"desk/hostile/{number}") + " !== undefined")
        shown = await page.value("[...document.querySelectorAll('.board .who a')].map((link) => link.textContent)")
        assert f"0{HOSTILE[0]}" in shown
        assert f"1{HOSTILE[1]}" in shown
        assert "2·cod.exe·" in shown, "a mark that turns the text around is shown as a mark"
        assert f"3{HOSTILE[3]}" in shown
        assert max(map(len, shown)) <= 201, "a long name is cut"
        assert await page.value("document.querySelectorAll('main img, main script').length") == 0
        assert "caught" not in await page.value("document.title")
        assert page.complaints == []

    look(tmp_path, story)
    for client in clients:
        client.close()


def test_no_other_page_can_have_the_broker_do_anything(house: BrokerProcess, slow: Raw, name: str) -> None:
    """A browser says where a request comes from; curl and the command line say nothing of it."""

    host = urlsplit(house.admin).netloc

    def ask(method: str, path: str, *headers: str) -> int:
        with socket.create_connection(("127.0.0.1", urlsplit(house.admin).port or 0)) as sock:
            lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", "Connection: close", *headers]
            sock.sendall("\r\n".join([*lines, "", ""]).encode())
            return int(sock.recv(1000).split()[1])

    own = house.admin
    client = f"/v1/clients/slow-{name}"
    assert ask("DELETE", client, "Origin: http://evil.example") == 403
    assert ask("DELETE", client, "Origin: null") == 403
    assert ask("DELETE", client, "Sec-Fetch-Site: cross-site") == 403
    assert ask("DELETE", client, "Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: navigate") == 403
    assert ask("GET", "/v1/broker", "Origin: http://127.0.0.1:1") == 403
    assert ask("GET", "/v1/broker", "Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: no-cors") == 403
    assert ask("GET", "/", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate") == 200, "a link leads to it"
    assert ask("GET", "/v1/broker", f"Origin: {own}", "Sec-Fetch-Site: same-origin") == 200
    assert house.consumer(f"slow-{name}"), "it is still there"
    assert ask("DELETE", client, f"Origin: {own}", "Sec-Fetch-Site: same-origin") == 204


def test_files_come_with_a_tag_and_a_policy(house: BrokerProcess) -> None:
    with urllib.request.urlopen(f"{house.admin}/") as answer:
        policy, tag = answer.headers["Content-Security-Policy"], answer.headers["ETag"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers.get_content_type() == "text/html"
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    again = urllib.request.Request(f"{house.admin}/", headers={"If-None-Match": tag})
    with pytest.raises(urllib.error.HTTPError) as unchanged:
        urllib.request.urlopen(again)
    assert unchanged.value.code == 304
    assert house.call("/console/nothing.js")[0] == 404
