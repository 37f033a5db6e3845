"""Actions: what a policy can do about a slow consumer, and how each action is written and described.

An action is built in or plugged in. A plugged-in action does nothing itself. When its rule fires it is called once and
answers with moves: built-in actions, and texts to announce. Moves that last do so until the rule steps back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from math import inf, isnan, nan
from typing import Any, Protocol

import msgspec

from headway.core.base import ConfigError, Mistakes, Names, parse_count, parse_duration, parse_size, unknown
from headway.core.message import BadTopic, validate_filter
from headway.core.policy.meters import Look
from headway.core.policy.rules.condition import Amount, parse_amount
from headway.core.policy.rules.table import like, plain_options, read, read_flag, read_text
from headway.core.selector import BadSelector, compile_selector


class ActionKind(StrEnum):
    """The kinds of actions, mildest first."""

    NOTIFY = "notify"
    CONFLATE = "conflate"
    DISCARD = "discard"
    OFFLINE = "offline"
    BLOCK_PUBLISHERS = "block_publishers"
    RETURN = "return"
    CLOSE_CONSUMER = "close_consumer"
    DISCONNECT = "disconnect"
    DELETE_SUBSCRIPTION = "delete_subscription"
    PLUGIN = "plugin"
    """A plugged-in action, which ``Action.name`` names."""

    @property
    def stateful(self) -> bool:
        """Tells whether the action lasts until the rule steps back. The others are done once."""
        return self in _STATEFUL

    @property
    def ends_subscription(self) -> bool:
        """Tells whether the action leaves no consumer to which further rules could apply."""
        return self in (ActionKind.DISCONNECT, ActionKind.DELETE_SUBSCRIPTION)

    @property
    def needs_connection(self) -> bool:
        """Tells whether the action means nothing to a consumer whose client is away."""
        return self in (ActionKind.DISCONNECT, ActionKind.CLOSE_CONSUMER)


_STATEFUL = frozenset(
    (
        ActionKind.NOTIFY, ActionKind.CONFLATE, ActionKind.DISCARD, ActionKind.OFFLINE, ActionKind.BLOCK_PUBLISHERS,
        ActionKind.RETURN, ActionKind.PLUGIN,
    )
)


CLOSE_S = 10.0
"""How long a client that can only be asked to close a consumer has for that, unless the rule says it."""


class Which(StrEnum):
    """Which waiting records a discard drops."""

    OLDEST = "oldest"
    NEWEST = "newest"
    SELECTOR = "selector"
    TOPICS = "topics"
    LOWEST_PRIORITY = "lowest_priority"
    OLDER_PER_KEY = "older_per_key"


COUNTED = frozenset((Which.OLDEST, Which.NEWEST, Which.LOWEST_PRIORITY))
"""Discards that drop records until few enough are left. They need ``keep_records`` or ``keep_bytes``."""


class Action(msgspec.Struct, frozen=True):
    """An action and its options. Only the options of its kind are set."""

    kind: ActionKind
    which: Which | None = None
    keep_records: Amount | None = None
    keep_bytes: int | None = None
    selector: str = ""
    topics: tuple[str, ...] = ()
    durable: bool = False
    """``delete_subscription`` deletes durable subscriptions too."""
    connection: bool = False
    """``disconnect`` ends the client's connection, whatever else the client does on it."""
    within_s: float = 0.0
    """A client that ``close_consumer`` cannot end has so many seconds to do it itself."""
    older_s: float = 0.0
    """``return`` takes back records that were sent at least so many seconds ago."""
    name: str = ""
    """The name of a plugged-in action, or of an operator's move."""
    options: tuple[tuple[str, Any], ...] = ()
    """The options of a plugged-in action, as they are written."""
    conflates: bool = False
    """A plugged-in action may answer with ``conflate``."""

    @property
    def word(self) -> str:
        """Returns the action's name as a config has it."""
        return self.name or str(self.kind)

    @property
    def needs_state(self) -> bool:
        """Tells whether the action needs a state: the latest record per key."""
        return self.conflates or self.kind is ActionKind.CONFLATE or self.which is Which.OLDER_PER_KEY

    @property
    def lacks_limit(self) -> bool:
        """Tells whether it is a discard that has to say how much may wait, and does not."""
        return self.which in COUNTED and self.keep_records is None and self.keep_bytes is None

    def records_kept(self, prefetch: int) -> float:
        """Returns how many waiting records a discard leaves to a client with this window; ``inf``: it has no limit."""
        kept = nan if self.keep_records is None else self.keep_records.of(prefetch)
        return inf if isnan(kept) else int(kept)

    @property
    def bytes_kept(self) -> float:
        """Returns how many waiting bytes a discard leaves, likewise."""
        return inf if self.keep_bytes is None else self.keep_bytes


class Move(msgspec.Struct, frozen=True):
    """One part of what a plugged-in action answers. Made by ``move`` and ``tell``."""

    action: Action | None
    """The built-in action to carry out; None: the move is only announced."""
    text: str = ""
    """A remark for the sentence of the verdict, or the text to announce."""
    details: Mapping[str, Any] = {}
    """Values to announce with the text."""


class PluggedAction(Protocol):
    """The interface of a plugged-in action. It needs ``conflates = True`` to answer with ``conflate``, for without it
    no state would be kept to conflate from."""

    @property
    def options(self) -> Mapping[str, Any]:
        """The options that a config may set, with their defaults: texts, numbers, true or false."""

    def act(self, look: Look, options: Mapping[str, Any], now: float) -> Sequence[Move]:
        """Returns the moves for this consumer. ``now`` is in seconds of a clock that only goes forward."""


class ActionInfo(msgspec.Struct, frozen=True):
    """All that rules and verdicts need to know of an action."""

    kind: ActionKind
    options: tuple[str, ...] = ()
    """The names of its options."""
    read: Callable[[Mapping[str, Any]], Action] | None = None
    """Makes the action from the options as written; None: it has no options."""
    deed: str = ""
    """The words that complete a sentence about the consumer: "it was ..."."""
    state: str = ""
    """The words for a consumer while the action lasts; empty: the same as ``deed``."""
    plugged: PluggedAction | None = None
    origin: str = ""
    """The distribution it was plugged in from."""


def parse_action(value: object) -> Action:
    """Parses an action: ``"disconnect"`` or ``{ action = "discard", which = "oldest", keep_records = 50 }``."""
    options: Mapping[str, object] = {} if isinstance(value, str) else value if isinstance(value, Mapping) else {}
    word = value if isinstance(value, str) else options.get("action")
    if not isinstance(word, str):
        example = '"notify" or { action = "discard", which = "oldest", keep_records = 50 }'
        raise ConfigError(f"then: expected an action such as {example}")
    info = ACTIONS.find(word)
    found = Mistakes()
    for key in options:
        if key != "action" and key not in info.options:
            known = str(unknown(f"option of {word}", key, info.options)) if info.options else ""
            found.lines.append(known or f"then: {word} has no options, found {key!r}")
    action = Action(info.kind) if info.read is None else found.attempt(info.read, options)
    found.check()
    assert action is not None
    return action


def plugged_action(name: str, plugged: PluggedAction, origin: str) -> ActionInfo:
    """Makes a plug-in an action. Raises ConfigError."""
    defaults = getattr(plugged, "options", None)
    if not isinstance(defaults, Mapping) or not callable(getattr(plugged, "act", None)):
        raise ConfigError("it is not an action: an action has act(look, options, now) and a mapping of options")
    if not plain_options(defaults):
        raise ConfigError("it is not an action: its options have to be texts, numbers, true or false")
    conflates = getattr(plugged, "conflates", False) is True

    def read_options(written: Mapping[str, Any]) -> Action:
        found = {key: like(defaults[key], written.get(key, defaults[key]), f"then.{key}") for key in defaults}
        return Action(ActionKind.PLUGIN, name=name, options=tuple(found.items()), conflates=conflates)

    return ActionInfo(ActionKind.PLUGIN, tuple(map(str, defaults)), read_options, plugged=plugged, origin=origin)


def move(action: str, text: str = "", **options: object) -> Move:
    """Returns a move with a built-in action and its options: ``move("discard", which="oldest", keep_records=50)``."""
    found = parse_action({"action": action, **options})
    if found.kind is ActionKind.PLUGIN:
        raise ConfigError(f"{action} is plugged in: a plug-in can only answer with built-in actions")
    if found.lacks_limit:
        raise ConfigError(f"discard {found.which} needs keep_records or keep_bytes: how much may wait")
    return Move(found, text)


def tell(text: str, **details: object) -> Move:
    """Returns a move that only announces a text, as an advisory ``told``."""
    return Move(None, text, details)


def _parse_discard(options: Mapping[str, object]) -> Action:
    word = options.get("which")
    if word is None:
        raise ConfigError(f"then: discard needs which = one of {', '.join(Which)}")
    try:
        which = Which(str(word))
    except ValueError:
        raise unknown("kind of discard", word, list(Which)) from None
    found = Mistakes()
    selector = found.attempt(read_text, options, "selector", "then.") or ""
    patterns = options.get("topics", ())
    if not isinstance(patterns, list | tuple) or not all(isinstance(pattern, str) for pattern in patterns):
        found.lines.append('then.topics: expected a list of topic filters such as ["quotes/minor/#"]')
        patterns = ()
    for number, pattern in enumerate(patterns, 1):
        try:
            validate_filter(pattern)
        except BadTopic as error:
            found.lines.append(f"then.topics[{number}]: {error}")
    for option, owner in (("selector", Which.SELECTOR), ("topics", Which.TOPICS)):
        if which is owner and not options.get(option):
            found.lines.append(f'then: which = "{owner}" needs {option} = ...')
        if which is not owner and options.get(option):
            found.lines.append(f'then.{option}: goes with which = "{owner}", not with "{which}"')
    if selector:
        try:
            compile_selector(selector)
        except BadSelector as error:
            found.lines.append(f"then.{error}")
    keep_records = found.attempt(read, options, "keep_records", _parse_keep, None, "then.")
    keep_bytes = found.attempt(read, options, "keep_bytes", parse_size, None, "then.")
    found.check()
    return Action(ActionKind.DISCARD, which, keep_records, keep_bytes, selector, tuple(patterns))


def _parse_keep(value: object) -> Amount:
    return parse_amount(value, parse_count, relative=True)


def _parse_delete(options: Mapping[str, object]) -> Action:
    return Action(ActionKind.DELETE_SUBSCRIPTION, durable=read_flag(options, "durable", False, "then."))


def _parse_close(options: Mapping[str, object]) -> Action:
    return Action(ActionKind.CLOSE_CONSUMER, within_s=read(options, "within", parse_duration, CLOSE_S, "then."))


def _parse_disconnect(options: Mapping[str, object]) -> Action:
    return Action(ActionKind.DISCONNECT, connection=read_flag(options, "connection", False, "then."))


def _parse_return(options: Mapping[str, object]) -> Action:
    return Action(ActionKind.RETURN, older_s=read(options, "older", parse_duration, 0.0, "then."))


ACTIONS: Names[ActionInfo] = Names("action", {str(info.kind): info for info in (
    ActionInfo(ActionKind.NOTIFY, deed="reported as slow"),
    ActionInfo(ActionKind.CONFLATE, deed="conflated to the latest record per key", state="conflated"),
    ActionInfo(ActionKind.DISCARD, ("which", "keep_records", "keep_bytes", "selector", "topics"), _parse_discard),
    ActionInfo(ActionKind.OFFLINE, deed="offlined to disk", state="offlined"),
    ActionInfo(ActionKind.BLOCK_PUBLISHERS),
    ActionInfo(ActionKind.RETURN, ("older",), _parse_return, deed="relieved of what it has not acknowledged"),
    ActionInfo(ActionKind.CLOSE_CONSUMER, ("within",), _parse_close, deed="asked to close"),
    ActionInfo(ActionKind.DISCONNECT, ("connection",), _parse_disconnect, deed="disconnected"),
    ActionInfo(ActionKind.DELETE_SUBSCRIPTION, ("durable",), _parse_delete, deed="unsubscribed"),
)})  # fmt: skip
