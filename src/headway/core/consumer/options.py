"""What a client may ask of a subscription: one vocabulary, whichever protocol carried it."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from headway.core.base import Reason, Refused, parse_duration
from headway.core.message import Dialect, Envelope


class SubscriptionOptions(msgspec.Struct, frozen=True):
    """The one vocabulary of subscription options, whichever protocol carried them."""

    conflate_s: float | None = None
    """Deliver the latest record per key this often; 0: whenever the socket has room."""
    snapshot: bool = False
    """First the state (the latest record per key), then live records, from one consistent point."""
    policy: str | None = None
    """A policy of the configuration, by name, instead of the one its topics select."""
    start: str = "end"
    """``from``: ``end``, ``earliest``, the sequence of the last record already seen, or a time (``start_time``)."""
    key: str | None = None
    selector: str | None = None
    offsets: bool = False
    """Have each record carry its sequence."""
    expiries: bool = False
    """Records that expired while they waited are announced as gaps, too."""
    lease_s: float | None = None
    """The subscription ends by itself after so long, unless it is subscribed to once more before."""

    def start_time(self, now_s: float) -> float | None:
        """The time to start from, in seconds since the epoch, ``now_s`` being the time now; None: it is no time."""
        if self.start in ("end", "earliest") or self.start.isdecimal():
            return None
        if self.start.startswith("-"):
            return now_s - parse_duration(self.start[1:])
        when = datetime.fromisoformat(self.start)
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


_FROM = "end, earliest, an offset, a time such as 2026-01-31T12:00:00Z, or how long ago, such as -5m"
NO_OPTIONS = SubscriptionOptions()
_TRUE, _FALSE = {"true", "1", "yes", "on"}, {"false", "0", "no", "off"}


def parse_options(pairs: list[tuple[str, str]]) -> SubscriptionOptions:
    """Options from name-value pairs; names that are not options are the client's own and left alone.

    Raises :class:`Refused` naming the option and what it takes."""
    found: dict[str, object] = {}
    for name, value in pairs:
        try:
            if name in ("conflate", "lease"):
                found[name + "_s"] = parse_duration(value)
            elif name in ("snapshot", "offsets", "expiries"):
                found[name] = _flag(value)
            elif name == "from":
                SubscriptionOptions(start=value).start_time(0.0)
                found["start"] = value
            elif name in ("policy", "key", "selector"):
                found[name] = value
        except Exception as error:
            duration = "a duration such as 500ms"
            takes = {"conflate": duration, "lease": duration, "from": _FROM}
            text = f"option {name}={value!r}: takes {takes.get(name, 'true or false')}"
            raise Refused(Reason.PROTOCOL_ERROR, text) from error
    return msgspec.convert(found, SubscriptionOptions) if found else NO_OPTIONS


def _flag(value: str) -> bool:
    if value.lower() not in _TRUE | _FALSE:
        raise ValueError(value)
    return value.lower() in _TRUE


class SubscribeRequest(msgspec.Struct, frozen=True):
    """What a client asks for, in the codec's words: ``dialect`` says how records are to be written for it."""

    filter: str
    dialect: Dialect
    shared_dialect: Dialect | None = None
    """How the lane of a shared group is written: a dialect that leaves nothing out."""
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    """The consumer sees the flag the publisher set."""
    send_retained: str = "always"
    """``always``, ``new`` (only if the subscription did not exist) or ``never``."""
    options: SubscriptionOptions = NO_OPTIONS
    name: object = None
    """By which its session knows it; None: by its filter."""
    envelope: Envelope | None = None
    """How a queue's records are written for it, a batch at a time; None: one by one, in ``dialect``."""
    polling: bool = False
    """It is given records of a queue when it asks for one, not before; those that are recorded it reads by itself."""

    @property
    def key(self) -> object:
        return self.filter if self.name is None else self.name

    @property
    def label(self) -> str:
        """The name, for people."""
        return "/".join(map(str, self.name)) if isinstance(self.name, tuple) else ""


class QueueTerms(msgspec.Struct, frozen=True):
    """What a queue was declared with. None: no limit."""

    durable: bool = False
    exclusive: bool = False
    """Only the session that declared it may use it, and it ends with it."""
    auto_delete: bool = False
    """It ends with its last consumer."""
    ttl_s: float | None = None
    """How long a record may wait."""
    idle_s: float | None = None
    """The queue ends when nobody has used it for so long."""
    records_max: int | None = None
    bytes_max: int | None = None
    refuses: bool = False
    """What is too much is refused to its publisher; else what has waited longest is dropped."""
    dead_letter_exchange: str | None = None
    """Where records go that were rejected, have expired, or were dropped."""
    dead_letter_key: str | None = None
    dead_letter_refused: bool = False
    priorities: int = 0
    """Records of higher priority, up to this one, go first; 0: in the order they came."""
    single_active: bool = False
    """One consumer gets everything until it is gone."""
    returns_max: int | None = None
    """A record that came back from consumers more often than this goes to nobody any more."""

    @property
    def limited(self) -> bool:
        return self.records_max is not None or self.bytes_max is not None
