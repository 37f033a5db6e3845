"""The console in Chromium: a slow client is seen with its cause, and what a page may not do it does not."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from bench.wires.packets import encode_publish
from tests.interop.chromium import CHROMIUM, Page
from tests.interop.conftest import BrokerFactory
from tests.interop.console_stage import CONFIG, USERS, look, move, row_of, sign_in, stuck
from tests.interop.console_stage import house as house
from tests.interop.console_stage import slow as slow
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw
from tests.interop.waiting import until
from tests.passwords import cheap_hash

BYTES_MAX = 300_000
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install -y chromium-headless-shell")


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


def test_many_of_one_lane_are_a_few_rows_until_somebody_asks(house: BrokerProcess, name: str, tmp_path: Path) -> None:
    topic = f"desk/many/{name}"
    clients = [Raw(house.port, f"{name}-{number}", receive_buffer=4096) for number in range(20)]
    for client in clients:
        client.subscribe(topic)
    with Raw(house.port) as publisher:
        for _ in range(200):
            publisher.send(encode_publish(topic, b"x" * 2000, version=5))

    async def story(page: Page) -> None:
        await page.open(f"{house.admin}/")
        await page.until("document.querySelector('.more')?.textContent === 'Show 8 more'")
        links = "[...document.querySelectorAll('table.board a')]"
        rows = f"{links}.filter((link) => link.textContent.startsWith('{name}-')).length"
        assert await page.value(rows) == 12
        assert await page.value("document.querySelectorAll('.line .cursor').length") >= 20, "a mark for each"
        await page.tab_to(".more button")
        await page.press("Enter")
        await page.until(f"{rows} === 20")
        assert page.complaints == []

    look(tmp_path, story)
    for client in clients:
        client.close()


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


def test_a_client_is_disconnected_with_the_keyboard_alone(
    house: BrokerProcess, slow: Raw, name: str, tmp_path: Path
) -> None:
    async def story(page: Page) -> None:
        await page.open(f"{house.admin}/")
        await page.until(f"{row_of(f'slow-{name}')} !== undefined")
        key = await page.value(f"{row_of(f'slow-{name}')}.querySelector('a').hash")
        await page.tab_to(f"a[href='{key}']")
        await page.press("Enter")
        await page.until(f"document.querySelector('h1')?.textContent === 'slow-{name}'")
        await page.until("document.querySelectorAll('.plot').length > 0")
        rules = await page.value("document.querySelector('.rules').textContent")
        assert "does not read" in rules
        assert "in force" in rules, "the rule that has fired"
        assert "limit 10 min" in rules, "the distance to the limit of the other"
        assert "does not read" in await page.value("document.querySelector('.deeds').textContent")
        await page.tab_to("#move-kick")
        await page.press("Enter")
        await page.until("document.querySelector('dialog')?.open")
        assert f"slow-{name}" in await page.value("document.querySelector('dialog').textContent"), "who it is for"
        await page.press("Escape")
        await page.until("document.querySelector('dialog') === null")
        assert house.consumer(f"slow-{name}"), "nothing happens without a yes"
        assert await page.value("document.activeElement.id") == "move-kick", "the focus is where it was"
        await page.press("Enter")
        await page.until("document.querySelector('dialog')?.open")
        await page.tab_to("#confirm")
        await page.press("Enter")
        await page.until("document.querySelector('.moves').textContent.includes('disconnected by an operator')")
        assert page.complaints == []

    look(tmp_path, story)
    until(lambda: not house.consumer(f"slow-{name}"), what="it is gone")
    (end,) = house.get(f"/v1/why/slow-{name}")["ends"]
    assert end["reason"] == "admin"


def test_every_view_shows_what_it_is_for(house: BrokerProcess, slow: Raw, name: str, tmp_path: Path) -> None:
    async def story(page: Page) -> None:
        async def view(address: str, shows: str) -> None:
            await page.open(f"{house.admin}/#/{address}")
            await page.until(f"document.querySelector('main').textContent.includes({shows!r})")

        await view("queues", f"desk/{name}")
        await page.until("document.querySelector('[href=\"#/queues/desk%2F%23\"]') !== null")
        await view("queues/desk%2F%23", "keys, as of offset")
        await page.until("document.querySelectorAll('main tbody tr').length > 0")
        await page.value("document.querySelector('#order').value = 'no ( order'")
        await page.value("document.querySelector('form').requestSubmit()")
        await page.until("document.querySelector('[role=status].note').textContent.includes('order')")
        await view("publishers", "flows")
        await view("pools", "global")
        await page.until("document.querySelectorAll('.plot').length === 8")
        await view("verdicts", f"slow-{name}")
        await page.value("document.querySelector('#who').value = 'nobody-*'")
        await page.value("document.querySelector('#who').form.requestSubmit()")
        await page.until("document.querySelector('main').textContent.includes('a quiet night')")
        await view(f"client/slow-{name}", "What its policy would do next")
        await view("policies", "As it is in force")
        buttons = "[...document.querySelectorAll('main button')]"
        await page.value(f"{buttons}.find((one) => one.textContent.startsWith('Save')).click()")
        text = "document.querySelector('#policy')"
        await page.value(f"{text}.value = {text}.value.replace('200ms', '1ms').replace('notify', 'disconnect')")
        await page.value(f"{text}.dispatchEvent(new Event('input'))")
        await page.until("document.querySelector('[aria-label=Now]').textContent.includes('disconnected')")
        await page.until(f"document.querySelector('main').textContent.includes('slow-{name}')")
        await page.value(f"{text}.value = '[[policy]]'")
        await page.value(f"{text}.dispatchEvent(new Event('input'))")
        await page.until("document.querySelector('#verdict').dataset.grave === 'bad'")
        assert "needs a name" in await page.value("document.querySelector('#verdict').textContent")
        refused = [one for one in page.complaints if "400 (Bad Request)" not in one]  # of the two mistakes made here
        assert refused == []

    look(tmp_path, story)


def test_who_may_not_change_sees_no_buttons_and_is_refused(start: BrokerFactory, tmp_path: Path) -> None:
    users = USERS.format(ann=cheap_hash("of ann"), bob=cheap_hash("of bob"))
    house = start(CONFIG + users, server={"send_buffer": "16KiB"})
    house.login = "ann:of ann"
    client = stuck(house, "slow", "desk/1", username="ann", password=b"of ann")
    house.login = ""
    assert house.call("/")[0] == 200, "the page itself has nothing of this broker, and asks for a login"
    assert house.call("/console/console.js")[0] == 200
    assert house.call("/v1/console/me")[0] == 401
    assert house.call("/v1/console/events")[0] == 401
    house.login = "bob:of bob"
    assert move(house, client="slow", move="skip")[0] == 403
    assert house.call("/v1/clients/slow", "DELETE")[0] == 403

    async def story(page: Page) -> None:
        await page.open(f"{house.admin}/")
        await sign_in(page, "bob", "of bob")
        await page.until(f"{row_of('slow')} !== undefined")
        await page.value(f"{row_of('slow')}.querySelector('a').click()")
        await page.until("document.querySelector('.rules tbody tr') !== null")
        assert await page.value("document.querySelectorAll('.buttons').length") == 0
        assert "change nothing" in await page.value("document.querySelector('main').textContent")

    look(tmp_path, story)
    house.login = "ann:of ann"
    assert house.get("/v1/console/me") == {"user": "ann", "may_change": True}
    status, told = move(house, client="slow", move="skip")
    assert status == 200
    assert "by an operator (ann)" in told["text"]
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
    assert ask("GET", "/v1/console/events", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate") == 403
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


FORGED = """(async () => {
    const { Feed } = await import("/console/feed.js");
    const numbers = [7, 8, 12, 13, 15];
    const texts = numbers.map((number) => `event: frame\\ndata: ${JSON.stringify({ number, rows: [] })}\\n\\n`);
    globalThis.fetch = async () => new Response(texts.join(""));
    const missed = [];
    const feed = new Feed(() => {});
    await new Promise((done) => feed.onFrame((frame) => {
        missed.push(feed.missed);
        if (frame.number === 15) done();
    }));
    return missed;
})()"""


def test_a_page_counts_the_frames_that_it_was_not_given(house: BrokerProcess, tmp_path: Path) -> None:
    async def story(page: Page) -> None:
        await page.open(f"{house.admin}/console/report.html")
        await page.until("document.querySelector('#said') !== null")
        assert await page.value(FORGED) == [0, 0, 3, 3, 4]

    look(tmp_path, story)
