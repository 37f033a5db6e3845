"""The console's own login form, in Chromium: who signs in sees the broker, and who does not is told why."""

from __future__ import annotations

import base64
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.interop.chromium import CHROMIUM, Page
from tests.interop.conftest import BrokerFactory
from tests.interop.console_stage import USERS, look, sign_in
from tests.interop.process import BrokerProcess
from tests.passwords import cheap_hash

from headway.server.config import digest_of

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install -y chromium-headless-shell")
PASSWORD = "of bob: ü€"
TOKEN = "a-token-of-a-program"
LIVE = "document.querySelector('#link').textContent === 'live'"
SAID = "document.querySelector('#login-said').textContent"
FORM = "document.querySelector('#login')"


@pytest.fixture
def guarded(start: BrokerFactory, tmp_path: Path) -> Iterator[BrokerProcess]:
    users = USERS.format(ann=cheap_hash("of ann"), bob=cheap_hash(PASSWORD))
    users = users.replace("read = [", 'read = ["bot", ')
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "lab.html").write_text(
        "<html><head><meta name='headway-report' content='lab'></head><body>"
        "<script>parent.postMessage('code of the origin ' + window.origin, '*')</script></body></html>"
    )
    broker = start(users + f'[auth.tokens]\nbot = "{digest_of(TOKEN)}"\n',
                   server={"reports": str(tmp_path / "reports")})  # fmt: skip
    yield broker
    broker.kill()


def test_a_wrong_login_is_told_and_a_good_one_stays_in_the_tab(guarded: BrokerProcess, tmp_path: Path) -> None:
    async def story(page: Page) -> None:
        await page.size(400, 800)
        await page.open(f"{guarded.admin}/")
        await sign_in(page, "bob", "of ann")
        await page.until(f"({SAID}).includes('Not signed in')")  # on a slow machine it says first that it waits
        assert await page.value("document.activeElement.id") == "password", "what is to be typed again"
        assert await page.value("document.querySelector('#password').value") == ""
        assert await page.value("sessionStorage.length") == 0
        assert await page.value("document.documentElement.scrollWidth <= innerWidth")
        fields = "[...document.querySelectorAll('#login input')]"
        assert await page.value(f"{fields}.every((one) => one.labels.length === 1)")
        await page.value("document.querySelector('#user').focus()")
        await sign_in(page, "bob", PASSWORD)
        await page.until(f"{FORM} === null && {LIVE}")
        assert await page.value("document.querySelector('h1').textContent") != ""
        secret = base64.b64encode(f"bob:{PASSWORD}".encode()).decode()
        assert not [url for url in page.urls if secret in url or "bob" in url]
        assert await page.value("localStorage.length + document.cookie.length") == 0
        await page.value("location.reload()")
        await page.until(LIVE)
        assert await page.value(FORM) is None, "a tab keeps it"
        assert [one for one in page.complaints if "401 (Unauthorized)" not in one] == []

        await page.tab_to("#leave")
        await page.press("Enter")
        await page.until(f"{FORM} !== null")
        assert await page.value("sessionStorage.length") == 0
        assert await page.value("getComputedStyle(document.querySelector('main')).display") == "none"

    look(tmp_path / "browser", story)


def test_a_token_signs_in(guarded: BrokerProcess, tmp_path: Path) -> None:
    async def story(page: Page) -> None:
        await page.open(f"{guarded.admin}/")
        await page.until(f"{FORM} !== null")
        await page.tab_to("#login summary")
        await page.press("Enter")
        await page.tab_to("#token")
        await page.do("Input.insertText", text="another")
        await page.press("Enter")
        await page.until(f"{SAID}.includes('no such token')")
        await page.value("document.querySelector('#token').select()")
        await page.do("Input.insertText", text=TOKEN)
        await page.press("Enter")
        await page.until(f"{FORM} === null && {LIVE}")

    look(tmp_path / "browser", story)


def test_who_guesses_is_told_to_wait(guarded: BrokerProcess, tmp_path: Path) -> None:
    async def story(page: Page) -> None:
        await page.open(f"{guarded.admin}/")
        await page.until(f"{FORM} !== null")
        await page.value("""(async () => {
            for (let number = 0; number < 14; number += 1) {
                await fetch("/v1/console/me", { headers: {
                    Authorization: `Basic ${btoa("bob:x" + number)}`, "X-Requested-With": "headway-console" } });
            }
        })()""")
        await sign_in(page, "bob", PASSWORD)
        await page.until(f"{SAID}.includes('makes an address wait') || {SAID}.includes('too many logins')")

    look(tmp_path / "browser", story)


def test_the_stream_begins_again_when_the_broker_does(start: BrokerFactory, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        admin = f"http://127.0.0.1:{free.getsockname()[1]}"
    users = USERS.format(ann=cheap_hash("of ann"), bob=cheap_hash(PASSWORD))
    first = start(users, server={"admin": admin})

    async def story(page: Page) -> None:
        await page.open(f"{admin}/")
        await sign_in(page, "bob", PASSWORD)
        await page.until(LIVE)
        await page.value("globalThis.seen = 'the same page'")
        first.kill()
        await page.until(f"!({LIVE})")
        start(users, server={"admin": admin})
        await page.until(LIVE)
        assert await page.value("globalThis.seen") == "the same page"
        assert await page.value(FORM) is None

    look(tmp_path / "browser", story)


def test_a_report_is_opened_with_the_login_of_the_tab(guarded: BrokerProcess, tmp_path: Path) -> None:
    async def story(page: Page) -> None:
        await page.open(f"{guarded.admin}/#/reports")
        await sign_in(page, "bob", PASSWORD)
        address = await page.until("document.querySelector('main tbody a')?.href")
        heard = "addEventListener('message', (event) => { globalThis.heard = event.data })"
        await page.do("Page.addScriptToEvaluateOnNewDocument", source=heard)
        await page.open(address)
        assert await page.until("globalThis.heard") == "code of the origin null"
        (one,) = [url for url in page.urls if "/v1/reports/" in url]
        assert one == f"{guarded.admin}/v1/reports/lab.html"

    look(tmp_path / "browser", story)


def test_a_program_gets_a_challenge_and_a_page_none_that_opens_a_window(guarded: BrokerProcess) -> None:
    def challenge(**headers: str) -> str:
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(urllib.request.Request(f"{guarded.admin}/v1/console/me", headers=headers))
        assert refused.value.code == 401
        return refused.value.headers["WWW-Authenticate"].split()[0]

    assert challenge() == "Basic"
    assert challenge(**{"X-Requested-With": "headway-console"}) == "Bearer"
