"""Options of a read, ``.option(...)``, read and checked."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headway.client.address import default_admin_url, read_admin_url
from headway.core.base import ConfigError, parse_count, parse_size
from headway.core.message import validate_filter
from headway.pipeline.broker.broker_client import Readers, read_flag, read_seconds, read_values

EARLIEST, LATEST = "earliest", "latest"
FOR_BATCHES = ("to", "pushFilters")
FOR_STREAMS = ("maxBytesPerTrigger", "maxOffsetsPerTrigger", "policy", "patience")
FOR_STATES = ("where", "selector", "order_by", "top", "skip", "at")
NOT_FOR_STATES = {
    "from": ": the state as it was has option at", "to": ": the state as it was has option at",
    "pushFilters": ": what the broker is to leave out says option where", "archive": "", "partitions": "",
} | dict.fromkeys(FOR_STREAMS, "")
"""Options that are for records only, and the other way to what they mean."""
OLD_NAMES = {"lake": "archive"}
OFFSET = re.compile(r"[0-9]+")


@dataclass(frozen=True)
class Options:
    """The options of a read. ``topic`` may be a filter."""

    topic: str
    admin: str = field(default_factory=default_admin_url)
    start: str = EARLIEST
    stop: str | None = None
    partitions: int = 4
    strict: bool = True
    """Whether lost records end the query."""
    timeout_s: float = 60.0
    push: bool = False
    """Whether Spark's filters narrow the range that the broker is asked for."""
    bytes_max: int | None = None
    offsets_max: int | None = None
    policy: str | None = None
    patience: str | None = None
    """For how long a batch may take without the query being slow."""
    archive: str | None = None
    """The folder of the topic's archive."""
    state: bool = False
    """Whether the latest record per key is read, and not the records."""
    where: str | None = None
    order_by: str | None = None
    top: str | None = None
    skip: str | None = None
    at: str | None = None
    """The offset or time of a state as it was."""

    @property
    def state_query(self) -> dict[str, str]:
        """The parameters of a query of the state."""
        said = {name: getattr(self, name) for name in ("where", "order_by", "top", "skip", "at")}
        return {name: text for name, text in said.items() if text is not None}


def read_options(given: Mapping[str, str]) -> Options:
    """Reads the options of batches and of streams. Raises ConfigError."""
    given = _renamed(given)
    values = read_values(given, READ)
    if "topic" not in values:
        raise ConfigError('option topic is missing: which topic to read, or a filter, such as "flights/#"')
    _check_state({name.lower() for name, text in given.items() if text.strip()}, state=values.get("state", False))
    return Options(**values)


def _renamed(given: Mapping[str, str]) -> dict[str, str]:
    """Returns the options by their present names. The old ones work until the next release, and say so."""
    for name in given:
        if name.lower() in OLD_NAMES:
            now = OLD_NAMES[name.lower()]
            warnings.warn(f"option {name} is called {now} now; the old name works until the next release",
                          FutureWarning, stacklevel=3)  # fmt: skip
    return {OLD_NAMES.get(name.lower(), name): text for name, text in given.items()}


def _check_state(said: set[str], *, state: bool) -> None:
    """Refuses what is for a state, where records are read, and the reverse. Raises ConfigError."""
    for name in FOR_STATES if not state else ():
        if name in said:
            raise ConfigError(f"option {name} is for states: add option state=true, or leave it away")
    for name, instead in NOT_FOR_STATES.items() if state else ():
        if name.lower() in said:
            raise ConfigError(f"option {name} is for records, not for a state (option state){instead}")
    if {"where", "selector"} <= said:
        raise ConfigError("options where and selector are the same: give one of them")


def for_batches(options: Options) -> Options:
    """Raises ConfigError."""
    _refuse(FOR_STREAMS, options, "streams: spark.readStream")
    if options.start == LATEST:
        raise ConfigError("option from: a batch that begins at the latest offset has nothing in it")
    start, stop = options.start, options.stop
    if stop is not None and OFFSET.fullmatch(start) and OFFSET.fullmatch(stop) and int(stop) < int(start):
        raise ConfigError(f"option to: {stop} is before from, {start}")
    return options


def for_streams(options: Options) -> Options:
    """Raises ConfigError."""
    _refuse(FOR_BATCHES, options, "batches: spark.read")
    if options.state:
        raise ConfigError("option state is for batches: spark.read; a stream has every record (leave it away)")
    return options


def _refuse(names: tuple[str, ...], options: Options, whose: str) -> None:
    for name in names:
        if getattr(options, READ[name][0]) not in (None, False):
            raise ConfigError(f"option {name} is for {whose}")


def _place(text: str) -> str:
    """Returns a place as the broker reads it; the case of the two words does not count."""
    return text.lower() if text.lower() in (EARLIEST, LATEST) else text


def read_patience(text: str) -> str:
    """Reads a duration, and returns it as the broker reads it."""
    return f"{read_seconds(text):g}s"


def at_least_one(read: Callable[[str], int]) -> Callable[[str], int]:
    def checked(text: str) -> int:
        found = read(text)
        if not found:
            raise ConfigError(f'"{text}": from 1 on')
        return found

    return checked


def _of_state(name: str) -> Callable[[str], str]:
    """Returns what checks an option of a query of the state, as all protocols have it."""

    def read(text: str) -> str:
        from headway.core.consumer import OPTIONS

        try:
            OPTIONS[name].read(text)
        except ValueError:
            raise ConfigError(f'"{text}": takes {OPTIONS[name].takes}') from None
        return text

    return read


READ: Readers = {
    "topic": ("topic", validate_filter),
    "admin": ("admin", read_admin_url),
    "from": ("start", _place),
    "to": ("stop", _place),
    "partitions": ("partitions", at_least_one(parse_count)),
    "failOnDataLoss": ("strict", read_flag),
    "timeout": ("timeout_s", read_seconds),
    "pushFilters": ("push", read_flag),
    "maxBytesPerTrigger": ("bytes_max", at_least_one(parse_size)),
    "maxOffsetsPerTrigger": ("offsets_max", at_least_one(parse_count)),
    "policy": ("policy", str),
    "patience": ("patience", read_patience),
    "archive": ("archive", str),
    "state": ("state", read_flag),
    "where": ("where", _of_state("where")),
    "selector": ("where", _of_state("selector")),
    "order_by": ("order_by", _of_state("order_by")),
    "top": ("top", _of_state("top")),
    "skip": ("skip", _of_state("skip")),
    "at": ("at", _of_state("at")),
}
