"""Rules: when a condition holds for this long, or this often, then do that.

A rule as it is written::

    when = { drain_rate = "<5000B/s" }    the condition (see condition.py)
    for = "500ms"                         it must hold that long without a break
    retries = 3                           ... or be found true in 3 tests spread evenly over that time
    times = 30                            fire only at the 30th separate time
    within = "1h"                         ... counting only those that began within the last hour
    until = { lag_records = "< 10" }      when to step back; left out: when ``when``, eased by a fifth, holds no more
    then = "disconnect"                   the action, or with options:
    then = { action = "discard", which = "oldest", keep_records = 50 }
    enforce = false                       a dry run: everything happens but the action
    name = "too slow for too long"        shown beside the number

What does not make sense is refused when it is read, not when it is needed: a rule that would act on a consumer for
what others do, a discard that does not say how much to keep, an ``until`` that holds at the very moment the rule fires.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TypeVar

import msgspec

from headway.core.base import ConfigError, parse_count, parse_duration, parse_size
from headway.core.message import BadTopic, validate_filter
from headway.core.policy.condition import METERS, Amount, Comparison, Condition, parse_amount, parse_condition, unknown
from headway.core.selector import BadSelector, compile_selector

TIMES_MAX = 1000
RETRIES_MAX = 1000

T = TypeVar("T")
D = TypeVar("D")


class ActionKind(StrEnum):
    """What can be done about a slow consumer, mildest first."""

    NOTIFY = "notify"
    CONFLATE = "conflate"
    DISCARD = "discard"
    OFFLINE = "offline"
    BLOCK_PUBLISHERS = "block_publishers"
    RETURN = "return"
    CLOSE_CONSUMER = "close_consumer"
    DISCONNECT = "disconnect"
    DELETE_SUBSCRIPTION = "delete_subscription"

    @property
    def stateful(self) -> bool:
        """It lasts until the rule steps back; the others are done once."""
        return self in _STATEFUL

    @property
    def ends_subscription(self) -> bool:
        """Once it is enforced there is nobody left for further rules."""
        return self in (ActionKind.DISCONNECT, ActionKind.DELETE_SUBSCRIPTION)


_STATEFUL = frozenset(
    (
        ActionKind.NOTIFY, ActionKind.CONFLATE, ActionKind.DISCARD, ActionKind.OFFLINE, ActionKind.BLOCK_PUBLISHERS,
        ActionKind.RETURN,
    )
)


class Which(StrEnum):
    """Which of the waiting records a discard gives up."""

    OLDEST = "oldest"
    NEWEST = "newest"
    SELECTOR = "selector"
    TOPICS = "topics"
    LOWEST_PRIORITY = "lowest_priority"
    OLDER_PER_KEY = "older_per_key"


_COUNTED = frozenset((Which.OLDEST, Which.NEWEST, Which.LOWEST_PRIORITY))
"""These give up records until few enough are left, so they must know how few."""


class Action(msgspec.Struct, frozen=True):
    """An action and its options; only those of its kind are set."""

    kind: ActionKind
    which: Which | None = None
    keep_records: Amount | None = None
    keep_bytes: int | None = None
    selector: str = ""
    topics: tuple[str, ...] = ()
    durable: bool = False
    """``delete_subscription`` deletes durable ones too."""
    older_s: float = 0.0
    """``return`` takes back what was sent at least so long ago."""

    def records_kept(self, prefetch: int) -> int | None:
        """How many waiting records a discard leaves a client with this window; None: as many as there are."""
        if self.keep_records is None:
            return None
        kept = self.keep_records.of(prefetch)
        return None if kept is None else int(kept)


class Rule(msgspec.Struct, frozen=True):
    """See the top of this module. ``for_s`` is ``for``, which is a word of the language."""

    when: Condition
    then: Action
    for_s: float = 0.0
    times: int = 1
    within_s: float = 0.0
    """0: however long ago."""
    retries: int = 0
    until: Condition | None = None
    enforce: bool = True
    name: str = ""


_RULE_KEYS = ["when", "for", "times", "within", "retries", "until", "then", "enforce", "name"]
_OPTIONS = {
    ActionKind.DISCARD: ["which", "keep_records", "keep_bytes", "selector", "topics"],
    ActionKind.DELETE_SUBSCRIPTION: ["durable"],
    ActionKind.RETURN: ["older"],
}


def parse_rule(mapping: object) -> Rule:
    """The rule a mapping says. Errors name the key; the policy's parser puts policy and number in front."""
    if not isinstance(mapping, Mapping):
        raise ConfigError('a rule is a table with "when" and "then"')
    for key in mapping:
        if key not in _RULE_KEYS:
            raise unknown("key", key, _RULE_KEYS)
    for key in ("when", "then"):
        if key not in mapping:
            raise ConfigError(f"{key!r} is missing")
    when = parse_condition(mapping["when"], "when")
    until = parse_condition(mapping["until"], "until") if "until" in mapping else None
    rule = Rule(
        when=when,
        then=_with_default_keep(parse_action(mapping["then"]), when),
        for_s=_read(mapping, "for", parse_duration, 0.0),
        times=_read(mapping, "times", parse_count, 1),
        within_s=_read(mapping, "within", parse_duration, 0.0),
        retries=_read(mapping, "retries", parse_count, 0),
        until=until,
        enforce=_flag(mapping, "enforce", True),
        name=_text(mapping, "name"),
    )
    _check(rule)
    return rule


def parse_action(value: object) -> Action:
    """``"disconnect"`` or ``{ action = "discard", which = "oldest", keep_records = 50 }``."""
    options: Mapping[str, object] = {} if isinstance(value, str) else value if isinstance(value, Mapping) else {}
    word = value if isinstance(value, str) else options.get("action")
    if not isinstance(word, str):
        example = '"notify" or { action = "discard", which = "oldest", keep_records = 50 }'
        raise ConfigError(f"then: expected an action such as {example}")
    try:
        kind = ActionKind(word)
    except ValueError:
        raise unknown("action", word, list(ActionKind)) from None
    known = _OPTIONS.get(kind, [])
    for key in options:
        if key != "action" and key not in known:
            if known:
                raise unknown(f"option of {kind}", key, known)
            raise ConfigError(f"then: {kind} has no options, found {key!r}")
    if kind is ActionKind.DISCARD:
        return _parse_discard(options)
    older_s = _read(options, "older", parse_duration, 0.0, "then.")
    return Action(kind, durable=_flag(options, "durable", False, "then."), older_s=older_s)


def _parse_discard(options: Mapping[str, object]) -> Action:
    word = options.get("which")
    if word is None:
        raise ConfigError(f"then: discard needs which = one of {', '.join(Which)}")
    try:
        which = Which(str(word))
    except ValueError:
        raise unknown("kind of discard", word, list(Which)) from None
    selector = _text(options, "selector", "then.")
    patterns = options.get("topics", ())
    if not isinstance(patterns, list | tuple) or not all(isinstance(pattern, str) for pattern in patterns):
        raise ConfigError('then.topics: expected a list of topic filters such as ["quotes/minor/#"]')
    for number, pattern in enumerate(patterns, 1):
        try:
            validate_filter(pattern)
        except BadTopic as error:
            raise ConfigError(f"then.topics[{number}]: {error}") from None
    for option, owner, given in (("selector", Which.SELECTOR, selector), ("topics", Which.TOPICS, patterns)):
        if which is owner and not given:
            raise ConfigError(f'then: which = "{owner}" needs {option} = ...')
        if which is not owner and given:
            raise ConfigError(f'then.{option}: goes with which = "{owner}", not with "{which}"')
    if selector:
        try:
            compile_selector(selector)
        except BadSelector as error:
            raise ConfigError(f"then.{error}") from None
    return Action(
        ActionKind.DISCARD,
        which=which,
        keep_records=_read(options, "keep_records", _parse_keep, None, "then."),
        keep_bytes=_read(options, "keep_bytes", parse_size, None, "then."),
        selector=selector,
        topics=tuple(patterns),
    )


def _parse_keep(value: object) -> Amount:
    return parse_amount(value, parse_count, relative=True)


def _with_default_keep(action: Action, when: Condition) -> Action:
    """A discard that was not told how much to keep keeps what its own condition allows to wait."""
    if action.which not in _COUNTED or action.keep_records is not None or action.keep_bytes is not None:
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


def _check(rule: Rule) -> None:
    """What each key may say by itself, but not together with the others."""
    if not 1 <= rule.times <= TIMES_MAX:
        raise ConfigError(f"times: from 1 to {TIMES_MAX:,}, not {rule.times}")
    if rule.within_s and rule.times == 1:
        raise ConfigError("within: says how old the counted times may be, so it needs times = 2 or more")
    if rule.retries > RETRIES_MAX:
        raise ConfigError(f"retries: at most {RETRIES_MAX:,}, not {rule.retries}")
    if rule.retries and not rule.for_s:
        raise ConfigError('retries: the tests are spread over "for", which is missing')
    if rule.within_s and rule.within_s < rule.for_s * rule.times:
        raise ConfigError("within: is too short for so many times of that length; the rule could never fire")
    if rule.then.kind is not ActionKind.BLOCK_PUBLISHERS and not rule.when.own:
        raise ConfigError(
            f"when: {rule.when} holds nothing against the consumer itself, so it could hit a healthy one; "
            "add a limit of its own, such as lag_age or blocked_time"
        )
    if rule.until is not None:
        if rule.then.kind.ends_subscription and rule.times == 1:
            raise ConfigError(f"until: there is no stepping back from {rule.then.kind}")
        _check_until(rule.when, rule.until)


def _check_until(when: Condition, until: Condition) -> None:
    """Where both are a comparison of one meter, stepping back must lie on the far side of firing."""
    if not isinstance(when, Comparison) or not isinstance(until, Comparison) or when.meter != until.meter:
        return
    form = METERS[when.meter].format
    if when.op[0] == until.op[0]:
        raise ConfigError(f"until: {until} points the same way as when: {when}; to step back write the other way round")
    if when.amount.per_prefetch != until.amount.per_prefetch:
        return
    beyond = until.amount.base > when.amount.base if when.op[0] == ">" else until.amount.base < when.amount.base
    if beyond:
        side = "at most" if when.op[0] == ">" else "at least"
        raise ConfigError(f"until: {until} overlaps when: {when}; its limit should be {side} {when.amount.text(form)}")


def _read(
    mapping: Mapping[str, object], key: str, parse: Callable[[object], T], default: D, where: str = ""
) -> T | D:
    if key not in mapping:
        return default
    try:
        return parse(mapping[key])
    except ConfigError as error:
        raise ConfigError(f"{where}{key}: {error}") from None


def _flag(mapping: Mapping[str, object], key: str, default: bool, where: str = "") -> bool:
    value = mapping.get(key, default)
    if not isinstance(value, bool):
        raise ConfigError(f"{where}{key}: expected true or false, not {value!r}")
    return value


def _text(mapping: Mapping[str, object], key: str, where: str = "") -> str:
    value = mapping.get(key, "")
    if not isinstance(value, str):
        raise ConfigError(f"{where}{key}: expected text, not {value!r}")
    return value.strip()
