"""Rules: when a condition holds for so long, or so often, then do something.

A rule as it is written::

    when = { drain_rate = "<5000B/s" }    the condition (see condition.py)
    for = "500ms"                         it must hold for so long without a break
    retries = 3                           ... or be found true in 3 tests spread evenly over that time
    times = 30                            fire only the 30th separate time
    within = "1h"                         ... counting only times that began within the last hour
    excuse_pauses = false                 a client's usual pauses are no excuse
    until = { lag_records = "< 10" }      when to step back; default: when ``when``, eased by a fifth, no longer holds
    then = "disconnect"                   the action, or with options:
    then = { action = "discard", which = "oldest", keep_records = 50 }
    enforce = false                       a dry run: everything happens but the action
    keyed = true                          only for transient subscriptions to topics of a [[topic]], which have a key
    name = "too slow for too long"        shown beside the number

A rule that makes no sense is refused when the config is read: one that would act on a consumer for what others do, a
discard that does not say how much to keep, or an ``until`` that holds already when the rule fires.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum, StrEnum
from functools import cached_property
from math import inf, isnan, nan
from typing import Any, Protocol, cast

import msgspec

from headway.core.base import ConfigError, Mistakes, Names, parse_count, parse_duration, parse_size, unknown
from headway.core.message import BadTopic, covers, validate_filter
from headway.core.policy.meters import METERS, Look, Sample
from headway.core.policy.rules.condition import (
    Amount,
    Comparison,
    Condition,
    like,
    parse_amount,
    parse_condition,
    plain_options,
    read,
    read_flag,
    read_text,
)
from headway.core.selector import BadSelector, compile_selector

# -- action ------------------------------------------------------------------------------------------------------------
#
# Actions: what a policy can do about a slow consumer, and how each action is written and described.
#
# An action is built in or plugged in. A plugged-in action does nothing itself. When its rule fires it is called once
# and answers with moves: built-in actions, and texts to announce. Moves that last do so until the rule steps back.


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


# -- rule --------------------------------------------------------------------------------------------------------------


TIMES_MAX = 1000
RETRIES_MAX = 1000


class Rule(msgspec.Struct, frozen=True):
    """One rule; see the top of this file. ``for_s`` is ``for``, which is a keyword of Python."""

    when: Condition
    then: Action
    for_s: float = 0.0
    times: int = 1
    within_s: float = 0.0
    """Seconds; 0: times count however long ago they began."""
    retries: int = 0
    until: Condition | None = None
    enforce: bool = True
    name: str = ""
    keyed: bool = False
    """The rule is only for subscriptions of which the latest record per key is kept anyway."""
    excuse_pauses: bool = True
    """A client that takes nothing for no longer than usual is not late."""

    def judged(self, sample: Sample) -> Sample:
        """Returns the sample as this rule sees it."""
        return sample if self.excuse_pauses else sample.unexcused()

    @property
    def marks(self) -> bool:
        """True if it finds slow consumers by itself, and not only by what other rules have marked slow."""
        return any(leaf.meter not in ("slow_count", "slow_fraction") for leaf in self.when.leaves())

    def leaves(self) -> tuple[Comparison, ...]:
        """Returns the comparisons of both conditions."""
        return self.when.leaves() + (self.until.leaves() if self.until is not None else ())


_RULE_KEYS = ["when", "for", "times", "within", "retries", "until", "then", "enforce", "keyed", "name",
              "excuse_pauses"]  # fmt: skip


def parse_rule(mapping: object) -> Rule:
    """Returns the rule of a table. Raises a ConfigError with all mistakes, which name their keys; ``parse_policy`` adds
    the policy and the rule's number."""
    if not isinstance(mapping, Mapping):
        raise ConfigError('a rule is a table with "when" and "then"')
    found = Mistakes()
    found.lines += [str(unknown("key", key, _RULE_KEYS)) for key in mapping if key not in _RULE_KEYS]
    found.lines += [f"{key!r} is missing" for key in ("when", "then") if key not in mapping]
    when = found.attempt(parse_condition, mapping["when"], "when") if "when" in mapping else None
    until = found.attempt(parse_condition, mapping["until"], "until") if "until" in mapping else None
    then = found.attempt(parse_action, mapping["then"]) if "then" in mapping else None
    if then is not None and when is not None:
        then = found.attempt(_with_default_keep, then, when)
    options = {
        "for_s": found.attempt(read, mapping, "for", parse_duration, 0.0),
        "times": found.attempt(read, mapping, "times", parse_count, 1),
        "within_s": found.attempt(read, mapping, "within", parse_duration, 0.0),
        "retries": found.attempt(read, mapping, "retries", parse_count, 0),
        "enforce": found.attempt(read_flag, mapping, "enforce", True),
        "name": found.attempt(read_text, mapping, "name"),
        "keyed": found.attempt(read_flag, mapping, "keyed", False),
        "excuse_pauses": found.attempt(read_flag, mapping, "excuse_pauses", True),
    }
    found.check()
    assert when is not None
    assert then is not None
    rule = Rule(when, then, until=until, **cast("dict[str, Any]", options))
    found.lines += _contradictions(rule)
    found.check()
    return rule


def _with_default_keep(action: Action, when: Condition) -> Action:
    """Returns the action. A discard that does not say how much to keep, keeps what its condition allows to wait."""
    if not action.lacks_limit:
        return action
    limits = {leaf.meter: leaf for leaf in when.leaves() if leaf.op[0] == ">"}
    records, size = limits.get("lag_records"), limits.get("lag_bytes")
    if records is None and size is None:
        raise ConfigError(
            f'then: discard which = "{action.which}" needs keep_records or keep_bytes: how much may wait '
            "(or a limit on lag_records or lag_bytes in when, which is taken then)"
        )
    return msgspec.structs.replace(
        action,
        keep_records=records.amount if records is not None else None,
        keep_bytes=int(size.amount.base) if size is not None else None,
    )


def _contradictions(rule: Rule) -> Iterator[str]:
    """Finds values that are valid by themselves but not together."""
    if not 1 <= rule.times <= TIMES_MAX:
        yield f"times: from 1 to {TIMES_MAX:,}, not {rule.times}"
    if rule.within_s and rule.times == 1:
        yield "within: says how old the counted times may be, so it needs times = 2 or more"
    if rule.retries > RETRIES_MAX:
        yield f"retries: at most {RETRIES_MAX:,}, not {rule.retries}"
    if rule.retries and not rule.for_s:
        yield 'retries: the tests are spread over "for", which is missing'
    if rule.within_s and rule.within_s < rule.for_s * rule.times:
        yield "within: is too short for so many times of that length; the rule could never fire"
    if rule.then.kind is not ActionKind.BLOCK_PUBLISHERS and not rule.when.own:
        yield (
            f"when: {rule.when} holds nothing against the consumer itself, so it could hit a healthy one; "
            "add a limit of its own, such as lag_age or blocked_time"
        )
    if rule.until is not None:
        if rule.then.kind.ends_subscription and rule.times == 1:
            yield f"until: there is no stepping back from {rule.then.kind}"
        yield from _bad_until(rule.when, rule.until)


def _bad_until(when: Condition, until: Condition) -> Iterator[str]:
    """Finds an ``until`` that compares the meter of ``when`` and can hold while the rule fires."""
    if not isinstance(when, Comparison) or not isinstance(until, Comparison) or when.meter != until.meter:
        return
    form = METERS[when.meter].unit.format
    if when.op[0] == until.op[0]:
        yield f"until: {until} points the same way as when: {when}; to step back write the other way round"
        return
    if when.amount.per_prefetch != until.amount.per_prefetch:
        return
    beyond = until.amount.base > when.amount.base if when.op[0] == ">" else until.amount.base < when.amount.base
    if beyond:
        side = "at most" if when.op[0] == ">" else "at least"
        yield f"until: {until} overlaps when: {when}; its limit should be {side} {when.amount.text(form)}"


# -- rule state --------------------------------------------------------------------------------------------------------
#
# The state of one rule for one consumer, and what a consumer that goes to and fro teaches it.
#
# A consumer that is slow, well, slow, well would make a verdict each time. So a rule that fires again soon after it has
# stepped back is *wavering*, and steps back less easily from then on:
#
# 1. A rule that fires within ``MEMORY_S`` of the last time has *relapsed*. Its condition has to be gone for ``CALM_S``
#    then, without a break, before it steps back; with each relapse for twice as long, up to ``CALM_MAX_S``.
# 2. If the condition holds again in that time, that is a relapse too. It is counted, and there is no decision about it.
# 3. ``MEMORY_S`` after the last relapse all is forgotten.
#
# This is for actions that do no harm while they last: ``notify``, ``conflate``, ``offline``, and what is done once. The
# others (to discard, to hold publishers back, to return records) end at once, for records or time are lost by them.


CALM_S = 2.0
CALM_MAX_S = 60.0
MEMORY_S = 300.0
SLACK_S = 1e-6
"""Times that differ by less than this are the same instant: sums of floating-point numbers are not exact."""
_ENDS_AT_ONCE = frozenset((ActionKind.DISCARD, ActionKind.BLOCK_PUBLISHERS, ActionKind.RETURN, ActionKind.PLUGIN))


class Phase(Enum):
    IDLE = 0
    PENDING = 1
    COUNTED = 2
    ACTIVE = 3


class RuleState:
    __slots__ = (
        "_calm", "_calm_since", "_relapsed_at", "_stepped_back_at", "actions", "fired_at", "next_test", "onsets",
        "phase", "relapses", "since", "tests",
    )  # fmt: skip

    def __init__(self) -> None:
        self.phase = Phase.IDLE
        self.since = 0.0
        self.fired_at = 0.0
        self.next_test = 0.0
        self.tests = 0
        self.onsets: list[float] = []
        self.actions: tuple[Action, ...] = ()
        """The actions in force while it is active: its own, or those that its plugged-in action answered."""
        self.relapses = 0
        """How often the condition has held anew since the rule began to waver."""
        self._relapsed_at = self._stepped_back_at = -inf
        self._calm = False
        """The condition was gone at some look since the rule fired or relapsed."""
        self._calm_since = inf
        """When it was first found gone, without a break until now; ``inf``: it is not."""

    @property
    def holds(self) -> bool:
        """True if it is active, and its condition was not gone when last looked at."""
        return self.phase is Phase.ACTIVE and not self._calm

    @property
    def steady(self) -> bool:
        """Tells whether no clock of it runs."""
        return self.phase is Phase.IDLE or (self.phase is Phase.ACTIVE and not self._calm)

    def fire(self, action: Action, now: float) -> None:
        """Makes the rule active."""
        self.phase, self.fired_at = Phase.ACTIVE, now
        self.actions = () if action.kind is ActionKind.PLUGIN else (action,)
        self._calm, self._calm_since = False, inf
        if now - self._stepped_back_at <= MEMORY_S:
            self._relapse(now)
        else:
            self.relapses = 0

    def steps_back(self, action: Action, holds: bool, gone: bool, now: float) -> bool:
        """Takes in a look at the active rule: whether its condition holds, and whether it is gone, with ease. Returns
        whether the rule steps back, and then it has."""
        if not gone:
            if holds and self._calm:
                self._relapse(now)
                self._calm = False
            self._calm_since = inf
            return False
        if action.kind not in _ENDS_AT_ONCE:
            self._calm = True
            if self._calm_since == inf:
                self._calm_since = now
            if now - self._calm_since + SLACK_S < self.calm_s(now):
                return False
        self.phase, self._stepped_back_at = Phase.IDLE, now
        return True

    def calm_s(self, now: float) -> float:
        """Returns for how long the condition has to be gone before the rule steps back."""
        if not self.relapses or now - self._relapsed_at > MEMORY_S:
            return 0.0
        return min(CALM_MAX_S, CALM_S * 2.0 ** min(self.relapses - 1, 32))

    def shift(self, seconds: float) -> None:
        """Moves the clocks by so many seconds, which were the broker's own fault."""
        self.since += seconds
        self.fired_at += seconds
        self.next_test += seconds
        self.onsets = [onset + seconds for onset in self.onsets]
        self._relapsed_at += seconds
        self._stepped_back_at += seconds
        self._calm_since += seconds

    def _relapse(self, now: float) -> None:
        self.relapses = 1 if now - self._relapsed_at > MEMORY_S else self.relapses + 1
        self._relapsed_at = now


# -- policy ------------------------------------------------------------------------------------------------------------
#
# Policies: ordered rules for the consumers of some topics, as a config file has them; evaluation.py applies them.


RULES_MAX = 64
PATIENCE_MAX_S = 3600.0
HTTP_LISTENER = "http"
"""The listener of clients of the admin API."""


class Subscriptions(StrEnum):
    """The subscriptions that a policy is for."""

    TRANSIENT = "transient"
    DURABLE = "durable"
    ALL = "all"


class Policy(msgspec.Struct, frozen=True, dict=True):
    """Ordered rules for the subscriptions that read some topics."""

    name: str
    topics: tuple[str, ...] = ("#",)
    subscriptions: Subscriptions = Subscriptions.ALL
    listeners: tuple[str, ...] = ()
    """The listeners through which its consumers came; empty: through any, or none yet."""
    rules: tuple[Rule, ...] = ()
    patience_max_s: float = PATIENCE_MAX_S
    """The longest patience that a client may ask for (meter.py, rule 8)."""

    def covers(self, durable: bool) -> bool:
        """Tells whether the policy is for subscriptions of this kind."""
        return self.subscriptions == Subscriptions.ALL or (self.subscriptions == Subscriptions.DURABLE) == durable

    def serves(self, listener: str) -> bool:
        """Tells whether the policy is for clients of this listener; ``""``: a queue that nobody consumes."""
        return not self.listeners or listener in self.listeners

    def compares(self, meter: str) -> bool:
        """Tells whether a rule can fire for what this meter reads."""
        return any(leaf.meter == meter for rule in self.rules for leaf in rule.when.leaves())

    @cached_property
    def minds_acks(self) -> bool:
        """Tells whether it compares ``ack_age``. Then a consumer is watched while it has something to acknowledge, even
        if nothing waits for it."""
        return self.compares("ack_age")

    @cached_property
    def minds_silence(self) -> bool:
        """Tells whether it compares ``unacknowledged_time``. Then its consumers are glanced at, even if nothing
        waits for them."""
        return self.compares("unacknowledged_time")

    @cached_property
    def plugged(self) -> tuple[str, ...]:
        """Returns the names of the plugged-in meters that its conditions compare, which are measured at each look."""
        named = dict.fromkeys(leaf.meter for rule in self.rules for leaf in rule.leaves())
        return tuple(name for name in named if METERS[name].plugged is not None)


NO_POLICY = Policy(name="none")


def policy_for(policies: Iterable[Policy], filter: str, durable: bool, listener: str) -> Policy:
    """Returns the first policy of the file whose topics include everything that the filter can match."""
    return policy_for_any(policies, (filter,), durable, listener)


def policy_for_any(policies: Iterable[Policy], filters: Iterable[str], durable: bool, listener: str) -> Policy:
    """Returns the first policy of the file that covers any of the filters of a queue, for clients of this listener."""
    for policy in policies:
        if not policy.covers(durable) or not policy.serves(listener):
            continue
        if any(covers(topics, name) for topics in policy.topics for name in filters):
            return policy
    return NO_POLICY


def policy_named(policies: Iterable[Policy], name: str) -> Policy | None:
    """Returns the policy of this name; None: there is none."""
    return next((policy for policy in policies if policy.name == name), None)


_POLICY_KEYS = ["name", "topics", "subscriptions", "listeners", "patience_max", "rule"]
_IN_FORCE = ("patience_max",)
"""Keys that say what a client gets, so only the policy in force can have them."""


def parse_policy(mapping: object, kind: str = "policy") -> Policy:
    """Returns the policy of a ``[[policy]]`` table. Raises a ConfigError with all mistakes, each with the policy, the
    rule's number and the key. ``kind``: the table's name, for errors."""
    if not isinstance(mapping, Mapping):
        raise ConfigError(f"a {kind} is a table with a name, topics and rules: [[{kind}]]")
    name = mapping.get("name")
    if not isinstance(name, str) or not name.strip():
        raise ConfigError(f'a {kind} needs a name: name = "market data"')
    where = f"{kind} {name!r}"
    keys = _POLICY_KEYS if kind == "policy" else [key for key in _POLICY_KEYS if key not in _IN_FORCE]
    found = Mistakes()
    found.lines += [f"{where}: {unknown('key', key, keys)}" for key in mapping if key not in keys]
    topics = found.attempt(_topics, mapping, where) or ()
    subscriptions = found.attempt(_subscriptions, mapping, where) or Subscriptions.ALL
    listeners = found.attempt(_listeners, mapping, where) or ()
    patience_max_s = found.attempt(read, mapping, "patience_max", parse_duration, PATIENCE_MAX_S, f"{where}: ") or 0.0
    rules = found.attempt(_rules, mapping, where, kind) or ()
    policy = Policy(name.strip(), topics, subscriptions, listeners, rules, patience_max_s)
    found.lines += [
        f"{where}, rule {number}: then.durable: the {kind} is for transient subscriptions only, "
        'so there is no durable one to delete (subscriptions = "all"?)'
        for number, rule in enumerate(rules, 1)
        if rule.then.durable and not policy.covers(durable=True)
    ]
    found.check()
    return policy


def parse_policies(tables: object, kind: str = "policy") -> tuple[Policy, ...]:
    """Returns all policies of a file, in its order. Names are unique."""
    if not isinstance(tables, list | tuple):
        raise ConfigError(f"{kind}: written as [[{kind}]] tables")
    policies = tuple(parse_policy(table, kind) for table in tables)
    seen: set[str] = set()
    for policy in policies:
        if policy.name in seen:
            raise ConfigError(f"{kind} {policy.name!r} is defined twice")
        seen.add(policy.name)
    return policies


def _subscriptions(mapping: Mapping[str, object], where: str) -> Subscriptions:
    try:
        return Subscriptions(str(mapping.get("subscriptions", "all")))
    except ValueError:
        kinds = ", ".join(f'"{kind}"' for kind in Subscriptions)
        raise ConfigError(f"{where}: subscriptions: one of {kinds}, not {mapping['subscriptions']!r}") from None


def _topics(mapping: Mapping[str, object], where: str) -> tuple[str, ...]:
    topics = mapping.get("topics", ["#"])
    if isinstance(topics, str) or not isinstance(topics, list | tuple) or not topics:
        raise ConfigError(f'{where}: topics: expected a list of topic filters such as ["stocks/us/#"]')
    found = Mistakes()
    for number, topic in enumerate(topics, 1):
        if not isinstance(topic, str):
            found.lines.append(f"{where}: topics[{number}]: expected a topic filter, not {topic!r}")
            continue
        try:
            validate_filter(topic)
        except BadTopic as error:
            found.lines.append(f"{where}: topics[{number}]: {error}")
    found.check()
    return tuple(topics)


def _listeners(mapping: Mapping[str, object], where: str) -> tuple[str, ...]:
    if "listeners" not in mapping:
        return ()
    names = mapping["listeners"]
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) and name for name in names):
        raise ConfigError(f'{where}: listeners: expected a list of listeners\' names such as ["desk"]')
    return tuple(dict.fromkeys(names))


def _rules(mapping: Mapping[str, object], where: str, kind: str) -> tuple[Rule, ...]:
    tables = mapping.get("rule", [])
    if not isinstance(tables, list | tuple):
        raise ConfigError(f"{where}: rules are written as [[{kind}.rule]] tables")
    if len(tables) > RULES_MAX:
        raise ConfigError(f"{where}: more than {RULES_MAX} rules")
    found, rules = Mistakes(), []
    for number, table in enumerate(tables, 1):
        in_rule = Mistakes()
        rules.append(in_rule.attempt(parse_rule, table))
        found.lines += [f"{where}, rule {number}: {line}" for line in in_rule.lines]
    found.check()
    return tuple(rule for rule in rules if rule is not None)
