"""The broker's admin API as a query asks it: offsets, records as Arrow, and its cursor.

A broker that is away, or too busy, is waited for. What it refuses is raised in its own words.
"""

from __future__ import annotations

import difflib
import json
import re
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException, HTTPMessage, HTTPSConnection
from typing import Any, NamedTuple, NoReturn, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import pyarrow as pa

from headway.client.address import LOG_IN, endpoint
from headway.core.base import ConfigError, parse_duration
from headway.core.message import BadTopic
from headway.pipeline.broker.errors import Away, OffsetsGone, SourceError

T = TypeVar("T")

# -- backoff -----------------------------------------------------------------------------------------------------------
#
# Backoff: waits for a broker that is away, with pauses that become longer, and not for ever.


PAUSE_S = 0.05
PAUSE_MAX_S = 2.0


class Backoff:
    def __init__(self, seconds: float) -> None:
        self._until_s = time.monotonic() + seconds
        self._pause_s = PAUSE_S

    def wait(self, error: Exception) -> None:
        """Pauses; raises the error once it has waited too long."""
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            raise error
        time.sleep(min(self._pause_s, left_s))
        self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)


# -- option values -----------------------------------------------------------------------------------------------------
#
# Options of a read or a write, ``.option(...)``: their texts become values. Spark does not tell capital letters from
# small ones.


SPARKS_OWN = re.compile(r"paths?|checkpointlocation|provider|owner|location|comment|option\..*|spark\..*")
"""Options that Spark adds: the path of ``load(path)``, and the properties of a table."""
Readers = Mapping[str, tuple[str, Callable[[str], Any]]]
"""Readers by option: the field that it sets, and the function that reads its text."""
_WORDS = {"true": True, "false": False}


def read_values(given: Mapping[str, str], known: Readers) -> dict[str, Any]:
    """Returns the fields that options were given for. Raises ConfigError."""
    said = {name.lower(): text.strip() for name, text in given.items()}
    names = {name.lower() for name in known}
    for name in said:
        if name not in names and not SPARKS_OWN.fullmatch(name):
            near = difflib.get_close_matches(name, names, n=1)
            meant = "".join(f"; did you mean {one}?" for one in known if one.lower() in near)
            raise ConfigError(f"unknown option {name!r}: there are {', '.join(sorted(known, key=str.lower))}{meant}")
    values: dict[str, Any] = {}
    for name, (attribute, read) in known.items():
        if text := said.get(name.lower()):
            try:
                values[attribute] = read(text)
            except (ConfigError, BadTopic) as error:
                raise ConfigError(f"option {name}: {error}") from None
    return values


def read_flag(text: str) -> bool:
    if text.lower() not in _WORDS:
        raise ConfigError(f'"{text}" is neither true nor false')
    return _WORDS[text.lower()]


def read_seconds(text: str) -> float:
    """Reads a duration; a bare number is in seconds, as Spark makes texts of numbers."""
    return parse_duration(float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else text)


# -- broker client -----------------------------------------------------------------------------------------------------
#
# The broker's admin API as a query asks it: offsets, records as Arrow, and its cursor.
#
# A broker that is away, or too busy, is waited for. What it refuses is raised in its own words.


BUSY = (502, 503, 504)
TOO_MANY = 429
GONE = 410
UNKNOWN = 401
AT_S = 150.0
"""The time limit of an answer with a state as it was: the broker takes two minutes to build it at most."""
LEAVE_S = 2.0
"""The time limit of a query's last request, which is not waited for any longer."""
_AWAY = (OSError, HTTPException, pa.ArrowInvalid)


class Offsets(NamedTuple):
    earliest: int
    latest: int
    """The next offset to come."""
    next: int
    """The offset at which the range that was asked for ends."""
    deleted: tuple[int, ...]
    """Where deleted records end that would have been in the range: its reader knows of them."""


SOME_EVICTED = -1
"""Stands for a number of evicted keys that the user may not know."""


class StateHead(NamedTuple):
    """The beginning of an answer with a state."""

    as_of: int
    evicted_keys: int
    """Keys that were evicted since the broker started; ``SOME_EVICTED``: the user may not know how many."""
    since: int
    """Keys are missing that have not changed since this offset, for older records are deleted. 0: none are."""


class Answer(NamedTuple):
    status: int
    headers: HTTPMessage
    body: bytes


class BrokerClient:
    """A client of the admin API. It connects when it first asks, so that a fresh one can be pickled."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self._endpoint = endpoint(url)
        self.url, self._login = self._endpoint.url, self._endpoint.headers
        self.timeout_s = timeout_s
        self._kept: HTTPConnection | None = None

    # -- records ----------------------------------------------------------------------------------------------------

    def offsets(self, topic: str, **query: object) -> Offsets:
        """Asks for offsets. ``query``: as the broker has it, from_ for from."""
        path = _records(topic, query)
        answer = self.with_backoff(lambda: self.ask("HEAD", path))
        if answer.status != 200:  # in so many words, which HEAD does not bring
            answer = self.with_backoff(lambda: self.ask("GET", path))
        return self._offsets(answer.status, answer.headers)

    def records(
        self, topic: str, first: int, stop: int, deleted: tuple[int, ...] = ()
    ) -> Iterator[pa.RecordBatch | int]:
        """The records with ``first`` <= offset < ``stop``; at the end where to go on, which is ``stop`` if nothing is
        missing. Raises Away, also in the middle, and OffsetsGone if more than ``deleted`` is."""
        with closing(self._connect()) as connection:
            try:
                path = self._path(_records(topic, {"from_": first, "to": stop, "deleted": deleted}))
                connection.request("GET", path, headers=self._login)
                answer = connection.getresponse()
                if answer.status != 200:
                    self._refuse(answer.status, answer.read())
                next_ = self._offsets(answer.status, answer.headers).next
                with pa.ipc.open_stream(answer) as stream:
                    yield from stream
            except _AWAY as error:
                raise self._away(error) from None
            yield next_

    def state(self, filter: str, query: Mapping[str, str]) -> Iterator[StateHead | pa.RecordBatch]:
        """The head of the answer, then the latest record per key, in the columns of records. Raises Away, also in the
        middle, and SourceError."""
        with closing(self._connect(AT_S if "at" in query else 0.0)) as connection:
            is_begun = False
            try:
                path = f"/v1/state/{quote(filter, safe='')}?{urlencode(dict(query) | {'format': 'arrow'})}"
                connection.request("GET", self._path(path), headers=self._login)
                answer = connection.getresponse()
                if answer.status == TOO_MANY:  # other queries of this client have to end first
                    self._refuse(BUSY[-1], answer.read())
                if answer.status != 200:
                    self._refuse(answer.status, answer.read())
                yield self._state_head(answer.headers)
                is_begun = True
                with pa.ipc.open_stream(answer) as stream:
                    yield from stream
            except _AWAY as error:
                if not is_begun:
                    raise self._away(error) from None
                why = "it has ended, or the state changes faster than it is read, or the right to read it is gone"
                raise Away(f"the broker at {self.url} broke its answer off: {why}; its log says which") from None

    # -- cursors ----------------------------------------------------------------------------------------------------

    def move(self, cursor: str, offset: int, more: Mapping[str, object]) -> dict[str, Any]:
        """Says that all before ``offset`` is processed. Raises OffsetsGone, and SourceError where a policy refuses."""
        data = json.dumps({"offset": offset, **more}).encode()
        answer = self.with_backoff(lambda: self.ask("PUT", _cursor(cursor), data))
        return self.object(answer.body)

    def leave(self, cursor: str, *, forget: bool) -> None:
        """Says that the query has stopped; its cursor stays, unless it is to be forgotten. Errors are ignored."""
        self._drop()
        self.timeout_s = min(self.timeout_s, LEAVE_S)
        with suppress(SourceError):
            if forget:
                self.ask("DELETE", _cursor(cursor))
            else:
                self.ask("POST", f"{_cursor(cursor)}/leave")
        self._drop()

    # -- asking -----------------------------------------------------------------------------------------------------

    def with_backoff(self, ask: Callable[[], T]) -> T:
        backoff = Backoff(self.timeout_s)
        while True:
            try:
                return ask()
            except Away as error:
                backoff.wait(error)

    def ask(self, method: str, path: str, body: bytes | None = None) -> Answer:
        """Raises Away, OffsetsGone, SourceError; not for HEAD, which has no words."""
        try:
            self._kept = connection = self._kept or self._connect()
            headers = {"Content-Type": "application/json"} if body else {}
            connection.request(method, self._path(path), body, headers | self._login)
            with connection.getresponse() as answer:
                found = Answer(answer.status, answer.headers, answer.read())
        except _AWAY as error:
            self._drop()
            raise self._away(error) from None
        except BaseException:
            self._drop()
            raise
        if found.status >= 400 and method != "HEAD":
            self._refuse(found.status, found.body)
        return found

    def _connect(self, least_s: float = 1.0) -> HTTPConnection:
        parts = urlsplit(self.url)
        host, timeout_s = parts.hostname or "", max(self.timeout_s, 1.0, least_s)
        try:
            tls = self._endpoint.tls()
        except ConfigError as error:
            raise SourceError(str(error)) from None
        if tls is None:
            return HTTPConnection(host, parts.port, timeout=timeout_s)
        return HTTPSConnection(host, parts.port, timeout=timeout_s, context=tls)

    def _drop(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _path(self, path: str) -> str:
        return urlsplit(self.url).path + path

    # -- answers ----------------------------------------------------------------------------------------------------

    def _offsets(self, status: int, headers: HTTPMessage) -> Offsets:
        try:
            earliest, latest, next = (int(headers[f"Headway-{name}-Offset"]) for name in ("Earliest", "Latest", "Next"))
            deleted = filter(None, (headers["Headway-Deleted-Offsets"] or "").split(","))
            return Offsets(earliest, latest, next, tuple(map(int, deleted)))
        except (KeyError, TypeError, ValueError):
            raise self._stranger(status) from None

    def _state_head(self, headers: HTTPMessage) -> StateHead:
        try:
            told = headers["Headway-Evicted-Keys"]
            evicted = SOME_EVICTED if told == "some" else int(told)
            return StateHead(int(headers["Headway-Offset"]), evicted, int(headers.get("Headway-Earliest-Offset", 0)))
        except (KeyError, TypeError, ValueError):
            raise self._stranger(200) from None

    def object(self, body: bytes) -> dict[str, Any]:
        try:
            found = json.loads(body)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise self._stranger(200)
        return found

    def _refuse(self, status: int, body: bytes) -> NoReturn:
        """Raises what it means."""
        try:
            said = json.loads(body)
            text = str(said["error"])
            if keyed := said.get("keyed"):
                text += f"; keyed is {', '.join(keyed)}"
        except (ValueError, TypeError, KeyError):
            raise self._stranger(status) from None
        if status in BUSY:
            raise Away(f"the broker at {self.url} is too busy: {text}")
        if status == GONE and "earliest" in said:
            raise OffsetsGone(text, int(said["earliest"]))
        if status == UNKNOWN:
            raise SourceError(f"the broker at {self.url} does not let this query in: {text}; {LOG_IN} (option admin)")
        raise SourceError(text)

    def _away(self, error: Exception) -> Away:
        if isinstance(error, ssl.SSLCertVerificationError):
            text = f"the certificate at {self.url} is not trusted: {error.verify_message}"
            raise SourceError(f"{text}; name its CA: admin = {self.url}?ca=FILE, or HEADWAY_CA")
        if isinstance(error, TimeoutError):
            why = "it does not answer"
        else:
            why = (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()
        return Away(
            f"no broker at {self.url} for {self.timeout_s:g} s: {why}; start it, or name its address (option admin), "
            "or wait for longer (option timeout)"
        )

    def _stranger(self, status: int) -> SourceError:
        return SourceError(
            f"what answers at {self.url} (status {status}) is not headway's admin API, or an older one (option admin)"
        )


def _records(topic: str, query: Mapping[str, object]) -> str:
    words = urlencode({
        name.rstrip("_"): ",".join(map(str, value)) if isinstance(value, tuple) else value
        for name, value in query.items() if value not in (None, ())
    })  # fmt: skip
    return f"/v1/topics/{quote(topic, safe='')}/records" + (f"?{words}" if words else "")


def _cursor(name: str) -> str:
    return f"/v1/cursors/{quote(name, safe='')}"
