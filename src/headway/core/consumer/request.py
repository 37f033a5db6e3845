"""Requests to connect and to subscribe, with the options of a subscription."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from itertools import islice
from math import inf
from typing import Final, NamedTuple

import msgspec

from headway.core.allowance import UNLIMITED, Allowance
from headway.core.base import Reason, Refused, parse_duration
from headway.core.consumer.credit import MQTT_ID_MAX
from headway.core.log import State
from headway.core.message import Dialect, Envelope, Record
from headway.core.permission import ALL_RIGHTS, Rights
from headway.core.selector import typed as typed_selector

# -- connect request ---------------------------------------------------------------------------------------------------
#
# A request to connect, with the will of the client.


class Will(msgspec.Struct, frozen=True):
    """A record to publish when the connection ends without a disconnect: ``delay_s`` later, unless the client is back.
    """

    record: Record
    delay_s: float = 0.0
    lifetime_s: float = inf

    @property
    def size(self) -> int:
        """Memory in bytes."""
        return self.record.size

    def permitted(self, rights: Rights) -> bool:
        """Tells whether a client with these rights may leave it."""
        return rights.may_publish(self.record.topic)


class NoWill(Will, frozen=True):
    """The will of a client that has none."""

    def permitted(self, rights: Rights) -> bool:
        return True


NO_WILL: Final = NoWill(Record("", b""))


class ConnectRequest(msgspec.Struct, frozen=True):
    """A request to connect. The session outlives the connection by ``expiry_s``; inf means for ever."""

    client: str
    listener: str
    clean_start: bool = True
    expiry_s: float = 0.0
    credit: int = MQTT_ID_MAX
    """Deliveries that the client permits to be in flight (MQTT Receive Maximum)."""
    max_packet_bytes: int = 2**62
    username: str | None = None
    protocol: str = ""
    will: Will = NO_WILL
    rights: Rights = ALL_RIGHTS
    """The client's rights."""
    allowance: Allowance = UNLIMITED
    """The allowance of the client's user."""
    owner: str = ""
    """The owner that the client's memory counts to, in words: its user, or its address. Empty: it is not counted.
    """


# -- option table ------------------------------------------------------------------------------------------------------
#
# The options that clients can say, in one table: name, meaning, and for what it is. All protocols read it.
#
# MQTT carries options as user properties of SUBSCRIBE, AMQP as arguments of ``basic.consume`` with ``x-headway-``
# before their names, HTTP as parameters of the query. Rules:
#
# - ``x-headway-`` may stand before any name; what begins with it is meant for the broker, so it has to be an option.
# - Other names are the client's own and are ignored, unless one is close to an option's: a slip of the finger, another
#   case, or an option's name with something behind it (``conflate_ms``). Such a name is refused, with the one that was
#   probably meant: an option that is misspelt would else be ignored in silence.
# - An option that is there, but not for what the client asks (a queue, a query), is refused, and the text says why.
# - A request may say ``PAIRS_MAX`` names. More are refused before any of them is looked at.


PREFIX = "x-headway-"
COUNT_MAX = 1_000_000_000
PAIRS_MAX = 100
"""Names that one request may say, options and others: each is compared with the options."""
TEXT_CHARS_MAX, VALUE_CHARS_MAX = 65_535, 100
"""The longest values, of texts and of all else. No sound one is near to that."""
UNCONFLATED_S = -1.0
"""The value of ``conflate`` that asks for every record, whatever the topic says."""
_SHORT_CHARS = 3
_LONG_CHARS = 7
_SEPARATORS = "_-."
_NAME_CHARS_MAX = 100
"""As much of a name is compared with the options."""
_LETTERS_MAX = 4
"""Two slips put at most so many letters into one of two names alone. Comparing sets of letters is quick, counting slips
is not."""


class Use(StrEnum):
    """The requests that options are for."""

    SUBSCRIPTION = "subscriptions to topics"
    QUEUE = "consumers of queues"
    QUERY = "queries of the state"


class Option(NamedTuple):
    """One row of the table."""

    field: str
    """The field of the parsed options."""
    read: Callable[[str], object]
    """Reads a value. Raises any error if it is none."""
    takes: str
    uses: frozenset[Use]
    instead: str = ""
    """The reason why a consumer of a queue has not this option, or its other way to the same."""


def start_time(text: str, now_s: float) -> float | None:
    """Returns the time that a value of ``from`` means, in seconds since 1970; None if it is no time."""
    if text in ("end", "earliest") or text.isdecimal():
        return None
    if text.startswith("-"):
        return now_s - parse_duration(text[1:])
    when = datetime.fromisoformat(text)
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def _start(text: str) -> str:
    start_time(text, 0.0)
    return text


def _interval(text: str) -> float:
    return UNCONFLATED_S if text == "off" else parse_duration(text)


def _selector(text: str) -> str | None:
    """Returns a selector. An empty one means none, as in JMS (2.0, 3.8.1.1)."""
    return text if text.strip() else None


_TRUE, _FALSE = {"true", "1", "yes", "on"}, {"false", "0", "no", "off"}


def _flag(text: str) -> bool:
    if text.lower() not in _TRUE | _FALSE:
        raise ValueError(text)
    return text.lower() in _TRUE


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > len(str(COUNT_MAX)) or int(text) > COUNT_MAX:
        raise ValueError(text)
    return int(text)


_DURATION, _TEXT, _TRUTH = "a duration such as 500ms", "a text", "true or false"
_FROM = "end, earliest, an offset, a time such as 2026-01-31T12:00:00Z, or how long ago, such as -5m"
_TOPICS = frozenset({Use.SUBSCRIPTION})
_CONSUMERS = frozenset({Use.SUBSCRIPTION, Use.QUEUE})
_QUERIES = frozenset({Use.QUERY})
_EACH_ONCE = "each record of a queue is for one consumer, in turn"
_NO_PAGES = "a queue has no state that could be ordered, or added up; consume 'amq.topic' with x-headway-topics instead"
_READ_TOPICS = "consume 'amq.topic' with x-headway-topics instead"

OPTIONS: Mapping[str, Option] = {
    "conflate": Option(
        "conflate_s", _interval, f"{_DURATION}, or off", _TOPICS,
        f"{_EACH_ONCE}, so a newer record cannot take the place of an older one; {_READ_TOPICS}",
    ),
    "snapshot": Option(
        "snapshot", _flag, _TRUTH, _TOPICS,
        f"{_EACH_ONCE}, and the state would reach only the first of them; {_READ_TOPICS}",
    ),
    "marks": Option(
        "marks", _flag, _TRUTH, _TOPICS, "a queue has no snapshot whose begin and end could be marked",
    ),
    "query": Option(
        "query", _flag, _TRUTH, _TOPICS,
        f"{_EACH_ONCE}, and the state would reach only the first of them; GET /v1/state/FILTER answers everybody",
    ),
    "out_of_focus": Option("out_of_focus", _flag, _TRUTH, _TOPICS, "a queue keeps what it has"),
    "delta": Option("delta", _flag, _TRUTH, _TOPICS, f"{_EACH_ONCE}, and has no record before to compare it with"),
    "key": Option("key", str, _TEXT, _TOPICS, "a queue is neither conflated nor has it a state"),
    "selector": Option("selector", _selector, _TEXT, _CONSUMERS | _QUERIES),
    "policy": Option("policy", str, _TEXT, _CONSUMERS),
    "from": Option("start", _start, _FROM, _TOPICS, "a binding takes from as its argument"),
    "offsets": Option("offsets", _flag, _TRUTH, _TOPICS, "the delivery tag numbers deliveries"),
    "expiries": Option("expiries", _flag, _TRUTH, _TOPICS, "records that expire in a queue are dead letters"),
    "lease": Option(
        "lease_s", parse_duration, _DURATION, _TOPICS,
        "a consumer of a queue ends with its channel, and an unused queue after x-expires",
    ),
    "patience": Option("patience_s", parse_duration, _DURATION, _CONSUMERS),
    "where": Option("selector", _selector, _TEXT, _QUERIES),
    "order_by": Option("order_by", str, _TEXT, _TOPICS | _QUERIES, _NO_PAGES),
    "top": Option("top", _count, "a number from 0 on", _TOPICS | _QUERIES, _NO_PAGES),
    "skip": Option("skip", _count, "a number from 0 on", _TOPICS | _QUERIES, _NO_PAGES),
    "select": Option("select", str, _TEXT, _TOPICS | _QUERIES, _NO_PAGES),
    "at": Option("at", str, "an offset, a time such as 2026-01-31T12:00:00Z, or how long ago, such as -5m", _QUERIES),
    "group_by": Option("group_by", str, _TEXT, _TOPICS | _QUERIES, _NO_PAGES),
}  # fmt: skip

_LETTERS = {name: frozenset(name) for name in OPTIONS}


def read_options(pairs: Iterable[tuple[str, str]], use: Use, *, strict: bool = False) -> dict[str, object]:
    """Returns the values of the options that the pairs say, by field. ``strict``: other names are refused, too.

    Raises :class:`Refused`, which says what is wrong with which name."""
    found: dict[str, object] = {}
    some = list(islice(pairs, PAIRS_MAX + 1))
    if len(some) > PAIRS_MAX:
        raise _refused(f"more than {PAIRS_MAX} options and names of the client's own; send fewer")
    for said, value in some:
        name = said.removeprefix(PREFIX)
        option = OPTIONS.get(name)
        if option is None:
            _ignore_or_refuse(said, use, strict=strict)
            continue
        if use not in option.uses:
            raise _refused(_elsewhere(name, option, use))
        try:
            if len(value) > (TEXT_CHARS_MAX if option.takes == _TEXT else VALUE_CHARS_MAX):
                raise ValueError(value)
            found[option.field] = option.read(value)
        except Exception as error:
            shown = value if len(value) <= 100 else value[:99] + "…"
            raise _refused(f"option {name}={shown!r}: takes {option.takes}") from error
    return found


def known_names(use: Use) -> list[str]:
    """Returns the names of the options for this use."""
    return [name for name, option in OPTIONS.items() if use in option.uses]


def nearest_option(said: str, among: Collection[str]) -> str | None:
    """Returns the option that a name is probably a slip of; None: it is not close to any."""
    name = said[:_NAME_CHARS_MAX].lower().removeprefix(PREFIX).removeprefix("headway-")
    if name in among:
        return name
    for option in among:
        if name.startswith(option) and name[len(option) : len(option) + 1] in _SEPARATORS:
            return option
    letters = set(name)
    close = [(_slips(name, option), option) for option in among if len(letters ^ _LETTERS[option]) <= _LETTERS_MAX]
    return next((option for slips, option in sorted(close) if slips <= _allowed(option)), None)


def _ignore_or_refuse(said: str, use: Use, *, strict: bool) -> None:
    """Raises Refused if a name that is no option's was meant for one."""
    meant, own = nearest_option(said, known_names(use)), said.startswith(PREFIX)
    if meant is None and not own and not strict:
        return
    prefix = PREFIX if own else ""
    shown = said if len(said) <= 100 else said[:99] + "…"
    names = ", ".join(prefix + name for name in known_names(use))
    guess = f"; did you mean {prefix}{meant}?" if meant else ""
    raise _refused(f"there is no {ascii(shown)[1:-1]}{guess}; there is: {names}")


def _elsewhere(name: str, option: Option, use: Use) -> str:
    """Says why an option is not for this use."""
    theirs = " and ".join(sorted(option.uses))
    why = f": {option.instead}" if use is Use.QUEUE and option.instead else ""
    return f"option {name} is for {theirs}, not for {use}{why}"


def _refused(text: str) -> Refused:
    return Refused(Reason.PROTOCOL_ERROR, text)


def _allowed(option: str) -> int:
    """Returns how many slips still make a name close to an option's."""
    return 0 if len(option) <= _SHORT_CHARS else 1 if len(option) < _LONG_CHARS else 2


def _slips(one: str, other: str) -> int:
    """Returns the number of letters that are missing, too many, wrong, or swapped with their neighbour; 3: more than
    two. No letter is compared with one that is more than two places away."""
    if abs(len(one) - len(other)) > 2:
        return 3
    size = len(other)
    before: list[int] = []
    row = [min(at, 3) for at in range(size + 1)]
    for i, letter in enumerate(one, 1):
        older, before, row = before, row, [min(i, 3)] + [3] * size
        for j in range(max(1, i - 2), min(size, i + 2) + 1):
            wanted = other[j - 1]
            best = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != wanted), 3)
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                best = min(best, older[j - 2] + 1)
            row[j] = best
        if row.count(3) > size:
            return 3
    return row[-1]


# -- options -----------------------------------------------------------------------------------------------------------
#
# Options of subscriptions and queues. All protocols share them.


_AGGREGATE = re.compile(r"(?:^|,)\s*\w+\s*\(")


class LiveTerms(NamedTuple):
    """The terms of a page of a state, or of aggregates, that is kept up to date: equal ones are shared."""

    state: State
    """The state of the topics that it is of."""
    order_by: str
    top: int
    skip: int
    select: str | None
    """Aggregates; None: it is a page."""
    group_by: str | None
    every_s: float
    """The least time between two changes that are told; 0: each turn."""


class SubscriptionOptions(msgspec.Struct, frozen=True):
    """The options of one subscription. Each protocol has its own way to carry them."""

    conflate_s: float | None = None
    """Deliver the latest record per key this often; 0: whenever the socket has room; ``UNCONFLATED_S``: every record.
    None: as the topic says."""
    snapshot: bool = False
    """Deliver first the state (the latest record per key), then live records, from one consistent point."""
    marks: bool = False
    """Mark the begin and the end of a snapshot, and tell the key of each of its records (delivery/marks.py)."""
    query: bool = False
    """Deliver the state, with marks, and then end the subscription."""
    out_of_focus: bool = False
    """Tell of keys whose latest record no longer matches the selector (log/states.py)."""
    delta: bool = False
    """Deliver only what has changed in a record, where the record before is known (core/forms.py)."""
    policy: str | None = None
    """A policy of the configuration, by name, instead of the one its topics select."""
    start: str = "end"
    """The option ``from``: ``end``, ``earliest``, the sequence of the last record already seen, or a time."""
    key: str | None = None
    selector: str | None = None
    offsets: bool = False
    """Each record carries its sequence."""
    expiries: bool = False
    """Records that expired while they waited are announced as gaps, too."""
    lease_s: float | None = None
    """Seconds after which the subscription ends, unless its client subscribes again before."""
    patience_s: float | None = None
    """Seconds for which the client may hold a delivery without being slow. Its policy may grant less."""
    order_by: str | None = None
    """The order of a live page. With ``top`` and ``skip`` the subscriber sees only a page of the state."""
    top: int | None = None
    skip: int | None = None
    select: str | None = None
    """The fields of each record that are wanted; or aggregates of the state, kept up to date, of the groups that
    ``group_by`` says."""
    group_by: str | None = None

    @property
    def live(self) -> bool:
        """Tells whether a page or aggregates are wanted in the place of all records."""
        if (self.order_by, self.top, self.skip, self.group_by) != (None,) * 4:
            return True
        return self.select is not None and bool(_AGGREGATE.search(self.select))

    @property
    def interval_s(self) -> float | None:
        """Returns how often the client wants the latest record per key; None if it does not ask for that."""
        return None if self.conflate_s == UNCONFLATED_S else self.conflate_s

    @property
    def wants_state(self) -> bool:
        return self.snapshot or self.query

    @property
    def marked(self) -> bool:
        return self.marks or self.query

    def start_time(self, now_s: float) -> float | None:
        """Returns the time to start from, in seconds since 1970, or None if ``start`` is not a time. ``now_s`` is the
        time now."""
        return start_time(self.start, now_s)


NO_OPTIONS = SubscriptionOptions()


def parse_options(
    pairs: Iterable[tuple[str, str]], use: Use = Use.SUBSCRIPTION, *, typed: bool = False
) -> SubscriptionOptions:
    """Returns the options that name-value pairs say. ``typed``: the client's protocol has types for
    properties, and so has the selector.

    Raises :class:`Refused` with the name of the option and what it takes."""
    found = read_options(pairs, use)
    selector = found.get("selector")
    if typed and isinstance(selector, str):
        found["selector"] = typed_selector(selector)
    return msgspec.convert(found, SubscriptionOptions) if found else NO_OPTIONS


class SubscribeRequest(msgspec.Struct, frozen=True):
    """A request to subscribe. ``dialect`` says how records are written for the consumer."""

    filter: str
    dialect: Dialect
    shared_dialect: Dialect | None = None
    """The dialect of a shared group's lane, which has to hold all properties of a record."""
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    """The consumer sees the flag the publisher set."""
    send_retained: str = "always"
    """``always``, ``new`` (only if the subscription did not exist) or ``never``."""
    options: SubscriptionOptions = NO_OPTIONS
    name: object = None
    """The subscription's name within its session; None: its filter."""
    envelope: Envelope | None = None
    """How records of a queue are written for the consumer in batches; None: one by one, in ``dialect``."""
    polling: bool = False
    """The consumer gets a record only when it asks for one, from a queue (AMQP basic.get) or from the archive."""
    alone: bool = False
    """While there is such a consumer, the first of them gets all records of the queue, and the others stand by."""
    by_library: bool = False
    """The client's library asked for it, of which the application knows nothing: it is revoked without a word."""

    @property
    def key(self) -> object:
        return self.filter if self.name is None else self.name

    @property
    def label(self) -> str:
        """The name as people read it."""
        return "/".join(map(str, self.name)) if isinstance(self.name, tuple) else ""


class QueueTerms(msgspec.Struct, frozen=True):
    """The terms a queue was declared with. None means no limit."""

    durable: bool = False
    exclusive: bool = False
    """Only the session that declared the queue may use it, and the queue ends with the session."""
    auto_delete: bool = False
    """The queue ends with its last consumer."""
    ttl_s: float | None = None
    """Seconds that a record may wait."""
    idle_s: float | None = None
    """Seconds after which an unused queue ends."""
    records_max: int | None = None
    bytes_max: int | None = None
    refuses: bool = False
    """A full queue refuses new records (AMQP ``reject-publish``). Otherwise it drops its oldest records."""
    dead_letter_exchange: str | None = None
    """The exchange to which records go that were rejected, have expired, or were dropped."""
    dead_letter_key: str | None = None
    dead_letter_refused: bool = False
    priorities: int = 0
    """The highest priority there is: records with a higher one go first. 0: records go in the order they came."""
    single_active: bool = False
    """One consumer gets all records until it is gone; then the next one does."""
    returns_max: int | None = None
    """A record that was requeued more often than this is dropped (a poison message)."""
    selector: str | None = None
    """The selector of a subscription to topics that is a queue. Records that do not match never enter it."""
    leaves_out: str | None = None
    """The client whose records never enter the queue (``no_local``)."""
    subscriber: str | None = None
    """The client whose durable subscription the queue is; empty: of any client without a name; None: it is none, or
    was made before 1 December 2026."""

    @property
    def drops_oldest(self) -> bool:
        """Whether the queue has a length limit, and drops its oldest records beyond it."""
        return not self.refuses and (self.records_max is not None or self.bytes_max is not None)
