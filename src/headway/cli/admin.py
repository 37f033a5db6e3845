"""The admin API as the command line asks it: JSON over HTTP with timeouts, and plain words when it fails."""

from __future__ import annotations

import http.client
import json
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPResponse
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

from headway.client.address import ADMIN_URL, LOG_IN, endpoint, read_admin_url
from headway.core.base import ConfigError

TIMEOUT_S = 5.0
ITS_CA = "its CA: --ca FILE, or HEADWAY_CA"
ANSWER_BYTES_MAX = 256 * 1024 * 1024


class NoBroker(ConfigError):
    """No broker answers at this address."""


class LoginRefused(ConfigError):
    """The broker refused the login."""


class NotFound(ConfigError):
    """The broker does not know the thing that was asked for."""


class AdminClient:
    """One broker's admin API."""

    def __init__(self, url: str | None = None, timeout_s: float = TIMEOUT_S, ca: Path | None = None) -> None:
        """``ca``: the CA of a broker with TLS, beside those that the address or the environment names."""
        place = endpoint(read_admin_url(url or os.environ.get("HEADWAY_ADMIN") or ADMIN_URL, ca=ca))
        self.url, self._login = place.url, place.headers
        self._timeout_s = timeout_s
        # A broker on loopback is not behind the proxy that the environment may name, nor does it redirect.
        self._opener = build_opener(ProxyHandler({}), HTTPSHandler(context=place.tls()))

    def broker(self) -> dict[str, Any]:
        return self._ask("/v1/broker")

    def consumers(self) -> list[dict[str, Any]]:
        return self._list("/v1/consumers", "consumers")

    def publishers(self) -> list[dict[str, Any]]:
        return self._list("/v1/publishers", "publishers")

    def queues(self) -> list[dict[str, Any]]:
        return self._list("/v1/queues", "queues")

    def why(self, client: str) -> dict[str, Any]:
        return self._ask(f"/v1/why/{quote(client, safe='')}")

    def preview(self, config: str) -> dict[str, Any]:
        """Asks which connected clients the config would hit."""
        return self._ask("/v1/preview", config.encode())

    def move(self, wanted: dict[str, str]) -> str:
        """Makes a move on a consumer. Returns what was done, in words."""
        return str(self._ask("/v1/moves", json.dumps(wanted).encode(), "application/json").get("text", ""))

    def verdicts(self, query: dict[str, str]) -> tuple[str, list[bytes]]:
        """Asks what is in the history. Returns its state (``on``, ``failing``, ``off``) and the lines, newest first."""
        with self._heard(), self._open(f"/v1/verdicts?{urlencode(query)}") as answer:
            state = answer.headers.get("Headway-History")
            if state is None:
                raise self._stranger()
            return state, answer.read(ANSWER_BYTES_MAX).splitlines()

    def records(self, topic: str, query: dict[str, str]) -> HTTPResponse:
        """Opens the recorded records of a topic, to be read and closed."""
        words = f"?{urlencode(query)}" if query else ""
        answer = self._open(f"/v1/topics/{quote(topic, safe='')}/records{words}")
        if "Headway-Next-Offset" not in answer.headers:
            raise self._stranger()
        return answer

    def state(self, filter: str, query: dict[str, str]) -> dict[str, Any]:
        """Asks for the state of a keyed topic, as one object."""
        return self._ask(f"/v1/state/{quote(filter, safe='')}?{urlencode(query)}")

    def hold_journal(self) -> HTTPResponse:
        """Has the broker hold its journal's files until this answer is closed. Its first line lists them."""
        return self._open("/v1/journal/backup", "POST")

    def _open(
        self, path: str, method: str = "GET", body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> HTTPResponse:
        """Opens an answer, to be read and closed."""
        request = Request(self.url + path, body, (headers or {}) | self._login, method=method)
        with self._heard():
            answer = self._opener.open(request, timeout=self._timeout_s)
        if not isinstance(answer, HTTPResponse):
            raise self._stranger()
        return answer

    @contextmanager
    def _heard(self) -> Iterator[None]:
        """Wraps what is asked of the broker, and what is read of its answer. Raises ConfigError."""
        try:
            yield
        except HTTPError as error:
            raise self._refusal(error) from None
        except (URLError, OSError, UnicodeError, http.client.HTTPException) as error:  # Unicode: of a host's name
            raise self._silence(getattr(error, "reason", error)) from None

    def _list(self, path: str, name: str) -> list[dict[str, Any]]:
        found = self._ask(path).get(name)
        if not isinstance(found, list):
            raise self._stranger()
        return found

    def _ask(self, path: str, body: bytes | None = None, kind: str = "application/toml") -> dict[str, Any]:
        headers = {"Accept": "application/json"} | ({} if body is None else {"Content-Type": kind})
        with self._heard(), self._open(path, "GET" if body is None else "POST", body, headers) as answer:
            return self._object(answer.read(ANSWER_BYTES_MAX))

    def _object(self, raw: bytes) -> dict[str, Any]:
        try:
            found = json.loads(raw)
        except (ValueError, RecursionError):
            raise self._stranger() from None
        if not isinstance(found, dict):
            raise self._stranger()
        return found

    def _refusal(self, error: HTTPError) -> ConfigError:
        """The broker's own words, if these are a broker's."""
        try:
            text = self._object(error.read(1_000_000)).get("error")
        except (OSError, http.client.HTTPException):
            text = None
        if not isinstance(text, str):
            return self._stranger()
        if error.code == 401:
            return LoginRefused(f"the broker at {self.url} does not let you in: {text}; {LOG_IN}")
        return NotFound(text) if error.code == 404 else ConfigError(text)

    def _silence(self, why: object) -> NoBroker:
        if isinstance(why, ConnectionRefusedError):
            return NoBroker(
                f"no broker is running at {self.url}; start one: headway serve (or name its address: --admin URL)"
            )
        if isinstance(why, TimeoutError):
            return NoBroker(f"the broker at {self.url} did not answer within {self._timeout_s:g} s")
        if isinstance(why, ssl.SSLCertVerificationError):
            return NoBroker(f"the certificate at {self.url} is not trusted: {why.verify_message} ({ITS_CA})")
        text = getattr(why, "strerror", None) or str(why) or type(why).__name__
        return NoBroker(f"no broker can be reached at {self.url}: {text.lower()} (its address: --admin URL)")

    def _stranger(self) -> NoBroker:
        return NoBroker(f"what answers at {self.url} is not headway's admin API (its address: --admin URL)")
