"""Chromium without a window, driven as its developer tools do it: pages, keys, pictures, and all that it asks for."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from tests.interop.waiting import PATIENCE_S, holds

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-headless-shell", "google-chrome"))), None)
KEYS = {"Enter": (13, "\r"), "Tab": (9, ""), "Escape": (27, ""), " ": (32, " ")}
BYTES_MAX = 64 << 20


class Page:
    """One page. ``urls`` has all that it asked for, ``complaints`` what the browser said of it."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = 0
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.urls: list[str] = []
        self.complaints: list[str] = []
        self.received: dict[str, int] = {}
        """Bytes of each answer, by URL."""
        self._of: dict[str, str] = {}
        self._login: tuple[str, str] | None = None
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self._socket:
            said = message.json()
            if "id" in said:
                self._answers.pop(said["id"]).set_result(said)
            else:
                self._note(said["method"], said["params"])

    def _note(self, method: str, of: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            self.urls.append(of["request"]["url"])
            self._of[of["requestId"]] = of["request"]["url"]
        elif method == "Network.loadingFinished" and of["requestId"] in self._of:  # a frame's own text has no request
            self.received[self._of[of["requestId"]]] = int(of["encodedDataLength"])
        elif method == "Log.entryAdded" and of["entry"]["level"] == "error":
            self.complaints.append(f"{of['entry']['text']} {of['entry'].get('url', '')}")
        elif method == "Runtime.exceptionThrown":
            details = of["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Fetch.requestPaused":
            self._post("Fetch.continueRequest", requestId=of["requestId"])
        elif method == "Fetch.authRequired":
            assert self._login is not None
            user, password = self._login
            self._post("Fetch.continueWithAuth", requestId=of["requestId"], authChallengeResponse={
                "response": "ProvideCredentials", "username": user, "password": password})  # fmt: skip

    def _post(self, method: str, **parameters: Any) -> asyncio.Future[dict[str, Any]]:
        self._numbers += 1
        answer = self._answers[self._numbers] = asyncio.get_running_loop().create_future()
        self._sending = asyncio.ensure_future(
            self._socket.send_json({"id": self._numbers, "method": method, "params": parameters})
        )
        return answer

    async def do(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command of the developer tools' protocol, and its result."""
        said = await self._post(method, **parameters)
        assert "error" not in said, (method, said["error"])
        return said["result"]

    async def begin(self) -> None:
        for domain in ("Page", "Network", "Log", "Runtime"):
            await self.do(f"{domain}.enable")

    async def log_in(self, user: str, password: str) -> None:
        """What the browser's own prompt would be told."""
        self._login = user, password
        await self.do("Fetch.enable", handleAuthRequests=True)

    async def open(self, url: str) -> None:
        await self.do("Page.navigate", url=url)

    async def value(self, expression: str) -> Any:
        """What an expression is in the page; promises are waited for."""
        said = await self.do("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in said, (expression, said["exceptionDetails"])
        return said["result"].get("value")

    async def until(self, expression: str, seconds: float = PATIENCE_S) -> Any:
        """Waits until the expression is true in the page."""
        deadline = asyncio.get_running_loop().time() + seconds
        while True:
            try:
                found = await self.value(expression)
            except AssertionError:
                found = None  # the page is not there yet
            if found:
                return found
            if asyncio.get_running_loop().time() > deadline:
                shown = await self.value("document.body.innerText")
                raise AssertionError(f"still not {expression}; the page shows: {shown}; {self.complaints}")
            await asyncio.sleep(0.02)

    async def press(self, key: str) -> None:
        code, text = KEYS.get(key, (ord(key.upper()[0]), key))
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            await self.do("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **more)

    async def tab_to(self, selector: str, most: int = 200) -> None:
        """Presses Tab until this element has the focus."""
        for _ in range(most):
            await self.press("Tab")
            if await self.value(f"document.activeElement?.matches({selector!r}) ?? false"):
                return
        raise AssertionError(f"{selector} is not reached by Tab")

    async def size(self, width: int, height: int) -> None:
        await self.do(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )  # fmt: skip

    async def prefer(self, scheme: str) -> None:
        await self.do("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    async def picture(self) -> bytes:
        """What is seen, as PNG."""
        return base64.b64decode((await self.do("Page.captureScreenshot", format="png"))["data"])


@asynccontextmanager
async def chromium(folder: Path) -> AsyncIterator[Page]:
    """A browser with one page. It ends with the block."""
    process = subprocess.Popen(  # noqa: ASYNC220  it is done at once
        [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}",
         "--remote-debugging-port=0", "about:blank"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        ready = folder / "DevToolsActivePort"
        await holds(lambda: ready.exists() and ready.read_text().count("\n"))
        address = f"http://127.0.0.1:{ready.read_text().split()[0]}"
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{address}/json/list") as answer:
                targets = await answer.json()
            url = next(one["webSocketDebuggerUrl"] for one in targets if one["type"] == "page")
            async with session.ws_connect(url, max_msg_size=BYTES_MAX) as socket:
                page = Page(socket)
                await page.begin()
                yield page
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # Debian's command is a script, and its child is the browser
        process.wait()
