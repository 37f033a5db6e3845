"""Kinds of values in a config: sizes, times, shares, URLs, topic filters, keys.

Each parses what people write into a plain value in base units, or raises one line that says which values it takes.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, PlainValidator
from pydantic_core import PydanticCustomError

from headway.core.base import (
    ConfigError,
    format_count,
    format_duration,
    format_share,
    format_size,
    parse_count,
    parse_duration,
    parse_share,
    parse_size,
)
from headway.core.message import BadKey, BadTopic, KeyExtractor, compile_key, validate_filter, validate_topic
from headway.core.selector import BadOrder, compile_ordering
from headway.server.config import host_limits
from headway.server.config.auth import check_digest, check_hash
from headway.server.protocols import SCHEMES, Scheme

# -- wildcards ---------------------------------------------------------------------------------------------------------
#
# Wildcards of other systems in topic filters, and how MQTT, whose filters Headway has, would write them.
#
# NATS, ActiveMQ and TIBCO write ``stocks.us.>``, AMQP ``stocks.*.open`` and ``stocks.#``, Ant and Spring ``stocks/**``.
# The words of a queue's name are levels, too: ``$queue/orders/#`` is for ``orders.eu``.


_OTHERS = re.compile(r"(^|[./])(>|\*{1,2}|%)(?=[./]|$)")
_WITHIN = re.compile(r"[*%]")
_OWN = ("$queue/", "$exchange/", "$share/")
PART_OF_A_LEVEL = (
    "* and % are ordinary characters here: + stands for one whole level, # for all levels below, and nothing stands "
    "for a part of a level"
)


def meant(filter: str) -> str:
    """Returns what to say about wildcards of another system in a filter; empty: it has none."""
    own = next((prefix for prefix in _OWN if filter.startswith(prefix)), "")
    rest = filter[len(own) :]
    dotted = "/" not in rest and "." in rest and own in ("", "$queue/")
    foreign = _OTHERS.search(rest)
    mixed = dotted and re.search(r"(^|\.)[#+](\.|$)", rest) is not None
    if not foreign and not mixed:
        if own or not _WITHIN.search(rest):
            return ""
        return PART_OF_A_LEVEL
    levels = re.split(r"[./]" if dotted else "/", rest)
    spelled: list[str] = []
    for number, level in enumerate(levels, 1):
        if level in ("**", "#") or (level == ">" and number == len(levels)):
            spelled.append("#")
            break  # it can only be the last level
        spelled.append("+" if level in ("*", "%", ">") else level)
    word = foreign[2] if foreign else "."
    what = f"{word} is a wildcard elsewhere, and an ordinary character here" if foreign else (
        "levels are separated by /, not by ."
    )  # fmt: skip
    return f'{what}; write "{own}{"/".join(spelled)}"'


def with_hint(error: str, filter: object) -> str:
    """Returns the error about an invalid filter, with what was probably meant."""
    hint = meant(filter) if isinstance(filter, str) else ""
    return f"{error} ({hint})" if hint else error


# -- fields ------------------------------------------------------------------------------------------------------------


T = TypeVar("T")

NAME_CHARS_MAX = 100
_WEB_PATH = re.compile(r"/[!$&-;=@-Z_a-z~%]*")
_ORIGIN = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://(\*\.)?(\[[0-9a-fA-F:]+\]|[0-9A-Za-z._-]+)(:[0-9]{1,5})?")
_PAGE_ORIGIN = re.compile(r"https?://(\[[0-9a-f:]+\]|[0-9a-z._-]+)(:[0-9]{1,5})?")
_ORIGINS = 'an origin: "https://app.example.com", "https://*.example.com", "null" (pages from files), or "*" (all)'
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


Network = ipaddress.IPv4Network | ipaddress.IPv6Network
LOOPBACK: tuple[Network, ...] = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1"))


class Table(BaseModel):
    """A table of the file. Unknown keys are refused, and values are converted by the type of their field alone."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, arbitrary_types_allowed=True)


class Url(NamedTuple):
    """The address of a listener: ``mqtt://127.0.0.1:1883``. Port 0 takes a free one."""

    scheme: str
    host: str
    port: int

    @property
    def kind(self) -> Scheme:
        """The scheme of a listener, described."""
        return SCHEMES[self.scheme]

    @property
    def secure(self) -> bool:
        """Whether the bytes are those of TLS."""
        return self.scheme == "https" or (self.scheme in SCHEMES and self.kind.tls)

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it. The only name of which that is known is ``localhost``."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def __str__(self) -> str:
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{shown}:{self.port}"


def same_address(one: str, other: str) -> bool:
    """Tells whether two listeners of these hosts cannot have the same port."""
    if one == other:
        return True
    if (":" in one) != (":" in other):
        # Two address families have ports of their own; only a name can mean both.
        return "localhost" in (one, other) and bool({one, other} & {"127.0.0.1", "::1", "0.0.0.0", "::"})
    return bool({one, other} & {"0.0.0.0", "::"}) or {one, other} == {"localhost", "127.0.0.1"}


def parse_url(value: object, scheme: str, default_port: int) -> Url:
    """Parses ``scheme://host:port``. Raises ConfigError."""
    example = f'a URL such as "{scheme}://127.0.0.1:{default_port}"'
    if not isinstance(value, str):
        raise ConfigError(f"{shown(value)} is not {example}")
    try:
        parts = urlsplit(value.strip())
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"{shown(value)} is not {example}: {str(error)[:80].lower()}") from None
    if not parts.scheme or "://" not in value:
        raise ConfigError(f"{shown(value)} is not {example}")
    if parts.scheme != scheme:
        raise ConfigError(f"{shown(value)}: unknown protocol {parts.scheme[:20]!r} (known: {scheme})")
    if not parts.hostname or any(char.isspace() for char in value.strip()):
        raise ConfigError(f"{shown(value)} is not {example}: the host is missing (0.0.0.0: all addresses)")
    if parts.username is not None or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ConfigError(f"{shown(value)} is not {example}: there is nothing but a host and a port in it")
    return Url(scheme, parts.hostname, default_port if port is None else port)


def shown(value: object) -> str:
    """Shows a value as it was written, shortened if it is long, and without the password of an address."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    text = f'"{value}"' if isinstance(value, str) else str(value)
    # An address with a login is refused, and the error goes to terminals and logs.
    text = re.sub(r"(://[^\s:/?#]*:)\S*@", r"\1***@", text)
    return text if len(text) <= 60 else text[:57] + '..."'


def _reads(parse: Callable[[Any], T]) -> PlainValidator:
    """Returns a field read by ``parse``, whose ConfigError becomes the field's own error."""

    def read(value: Any) -> T:
        try:
            return parse(value)
        except ConfigError as error:
            # The text is passed as a value, because braces in a template would be filled in.
            raise PydanticCustomError("headway", "{text}", {"text": str(error)}) from None

    return PlainValidator(read)


def _within(
    parse: Callable[[object], float], low: float, high: float, form: Callable[[float], str]
) -> Callable[[object], Any]:
    def read(value: object) -> float:
        number = parse(value)
        if number < low:
            raise ConfigError(f"{shown(value)} is too little: from {form(low)} to {form(high)}")
        if number > high:
            raise ConfigError(f"{shown(value)} is too much: from {form(low)} to {form(high)}")
        return number

    return read


def count(low: int, high: int) -> PlainValidator:
    return _reads(_within(parse_count, low, high, format_count))


def size(low: int, high: int) -> PlainValidator:
    return _reads(_within(parse_size, low, high, format_size))


def duration(low: float, high: float) -> PlainValidator:
    return _reads(_within(parse_duration, low, high, format_duration))


def _share(value: object) -> float:
    share = parse_share(value)
    if share <= 0:
        raise ConfigError(f"{shown(value)} is too little: more than 0 %, up to {format_share(1.0)}")
    return share


def memory(value: object) -> int:
    """Parses a size, or a percentage of this process's memory. Raises ConfigError."""
    if isinstance(value, str) and value.strip().endswith("%"):
        return int(_share(value) * host_limits.memory_bytes())
    try:
        return parse_size(value)
    except ConfigError as error:
        raise ConfigError(f'{error}, or a share of the memory such as "10%"') from None


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"expected text, not {shown(value)}")
    return value.strip()


def _path(value: object) -> Path:
    return Path(_text(value)).expanduser()


def _name(value: object) -> str:
    text = _text(value)
    if len(text) > NAME_CHARS_MAX or not text.isprintable():
        raise ConfigError(f"{shown(value)} is not a name: up to {NAME_CHARS_MAX} printable characters")
    return text


def _identifier(value: object) -> str:
    """Parses a name that is valid in SQL without quotes, and as the name of a folder."""
    name = _name(value)
    if not _IDENTIFIER.fullmatch(name):
        raise ConfigError(f"{shown(name)} is not a name for SQL: letters, digits and _, such as delay_by_carrier")
    return name


def _column(value: object) -> str:
    name = _name(value)
    if name.startswith("/"):
        raise ConfigError(f"{shown(name)} is not the name of a column, such as {shown(name[1:] or 'carrier')}")
    return name


def _checked(check: Callable[[str], T], what: str) -> Callable[[object], T]:
    """Returns a parser of texts that ``check`` accepts; ``what`` says what else was expected."""

    def parse(value: object) -> T:
        if not isinstance(value, str):
            raise ConfigError(f"{shown(value)} is not {what}")
        try:
            return check(value)
        except BadTopic as error:
            raise ConfigError(with_hint(str(error), value if error.kind == "filter" else None)) from None
        except (BadKey, BadOrder) as error:
            raise ConfigError(str(error)) from None

    return parse


def _own_topic(value: str) -> str:
    if value.startswith("$"):
        raise ConfigError(f"{shown(value)}: topics that begin with $ are the broker's own")
    return validate_topic(value)


def _order(value: str) -> str:
    return compile_ordering(value).text


def one_of(*words: str) -> PlainValidator:
    def read(value: object) -> object:
        if value not in words:
            raise ConfigError(f"{shown(value)} is none of {', '.join(words)}")
        return value

    return _reads(read)


POOL_BYTES_MIN = 1_000_000


class TopicPool(NamedTuple):
    """The pool of a topic; ``disk_bytes`` None: as large a part of ``[pool]``'s disk as of its memory."""

    memory_bytes: int
    disk_bytes: int | None


def _topic_pool(value: object) -> TopicPool:
    table = value if isinstance(value, dict) else {"memory": value}
    if "memory" not in table or table.keys() - {"memory", "disk"}:
        keys = ", ".join(str(key)[:20] for key in list(table)[:5]) or "nothing"
        raise ConfigError(f'expected a size such as "200MB", or {{ memory = "200MB", disk = "1GB" }}, not {keys}')
    memory_bytes = _within(parse_size, POOL_BYTES_MIN, 1 << 60, format_size)(table["memory"])
    disk = table.get("disk")
    return TopicPool(memory_bytes, None if disk is None else _within(parse_size, 0, 1 << 60, format_size)(disk))


class Keep(NamedTuple):
    """Limits of what is recorded; None: no such limit."""

    seconds: float | None
    bytes: int | None

    def __str__(self) -> str:
        limits = [format_duration(self.seconds)] if self.seconds is not None else []
        return " or ".join([*limits, *([format_size(self.bytes)] if self.bytes is not None else [])])


def _keep(value: object) -> Keep:
    """Parses a time, a size, or a list of both, of which the limit reached first counts. A bare number is refused:
    7 is meant as days or gigabytes, and would drop everything older than seven seconds."""
    seconds = size_bytes = None
    for one in value if isinstance(value, list) else [value]:
        if re.fullmatch(r"[\d._]+", number := str(one).strip()):
            ways = f'write a time such as "{number}d" or a size such as "{number}GB"'
            raise ConfigError(f"{shown(one)} has no unit: {ways}")
        try:
            seconds = parse_duration(one)
        except ConfigError:
            try:
                size_bytes = parse_size(one)
            except ConfigError:
                text = f'{shown(one)} is neither a time such as "7d" nor a size such as "10GB"'
                raise ConfigError(text) from None
    return Keep(seconds, size_bytes)


def _fsync(value: object) -> str | float:
    """Parses ``always``, ``off``, or the seconds by which a sync may be delayed."""
    if value in ("always", "off"):
        return str(value)
    try:
        return float(_within(parse_duration, 0.001, 1.0, format_duration)(value))
    except ConfigError:
        raise ConfigError(f'{shown(value)} is not "always", "off", or a time from "1ms" to "1s"') from None


def _listener(value: object) -> Url:
    scheme = value.partition(":")[0].strip() if isinstance(value, str) else ""
    if scheme in SCHEMES or not scheme or "://" not in str(value):
        name = scheme if scheme in SCHEMES else next(iter(SCHEMES))
        return parse_url(value, name, SCHEMES[name].port)
    raise ConfigError(f"{shown(value)}: unknown protocol {scheme[:20]!r} (known: {', '.join(SCHEMES)})")


def _like(pattern: re.Pattern[str], what: str) -> PlainValidator:
    """Returns a field for texts of this pattern; ``what`` says what else was expected."""

    def read(value: object) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise ConfigError(f"{shown(value)} is not {what}")
        return value

    return _reads(read)


def _network(value: object) -> Network:
    try:
        return ipaddress.ip_network(value if isinstance(value, str) else "")
    except ValueError:
        raise ConfigError(f'{shown(value)} is not an address or a network such as "10.0.0.0/8"') from None


def _admin(value: object) -> Url | None:
    if value is False:
        return None
    if value is True:
        raise ConfigError('expected a URL such as "http://127.0.0.1:9883", or false')
    secure = isinstance(value, str) and value.strip().startswith("https:")
    return parse_url(value, "https" if secure else "http", 9883)


def _header_value(value: object) -> str:
    text = _text(value)
    if not text.isascii() or not text.isprintable():
        raise ConfigError("the value of a header has printable ASCII characters only")
    return text


def _web_url(example: str) -> PlainValidator:
    def read(value: object) -> str:
        text = value if isinstance(value, str) and value.isprintable() and " " not in value else ""
        try:
            parts = urlsplit(text)
            right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
            right = right and parts.username is None and not parts.fragment
        except ValueError:
            right = False
        if not right:
            raise ConfigError(f'{shown(value)} is not a URL such as "{example}"')
        return text

    return _reads(read)


Name = Annotated[str, _reads(_name)]
Identifier = Annotated[str, _reads(_identifier)]
Column = Annotated[str, _reads(_column)]
Text = Annotated[str, _reads(_text)]
Path_ = Annotated[Path, _reads(_path)]
Share = Annotated[float, _reads(_share)]
Memory = Annotated[int, _reads(memory)]
Filter = Annotated[str, _reads(_checked(validate_filter, 'a topic filter such as "flights/#"'))]
Topic = Annotated[str, _reads(_checked(_own_topic, 'a topic such as "views/delay"'))]
Key = Annotated[
    KeyExtractor,
    _reads(_checked(compile_key, 'a key: "topic", "property:NAME" or a JSON pointer such as "/tailnum"')),
]
Order = Annotated[str, _reads(_checked(_order, 'an order such as "/delay DESC"'))]
Hash = Annotated[str, _reads(check_hash)]
Digest = Annotated[str, _reads(check_digest)]
Fsync = Annotated[str | float, _reads(_fsync)]
Keep_ = Annotated[Keep, _reads(_keep)]
TopicPool_ = Annotated[TopicPool, _reads(_topic_pool)]
Network_ = Annotated[Network, _reads(_network)]
WebPath = Annotated[str, _like(_WEB_PATH, 'the path of a URL, such as "/mqtt"')]
Origin = Annotated[str, _like(_ORIGIN, _ORIGINS)]
PageOrigin = Annotated[str, _like(_PAGE_ORIGIN, 'the origin of a page, such as "https://ops.example.com"')]
HookUrl = Annotated[str, _web_url("http://127.0.0.1:8080/login")]
HeaderName = Annotated[str, _like(_HEADER_NAME, "the name of a header, such as authorization")]
HeaderValue = Annotated[str, _reads(_header_value)]
CollectorUrl = Annotated[str, _web_url("http://127.0.0.1:4318")]
AdminUrl = Annotated[Url | None, _reads(_admin)]
ListenerUrl = Annotated[Url, _reads(_listener)]
