"""Policies in the making, and their order in the file.

Rules:
- What another system says of the same topics in several places is one policy: here the first that covers a
  subscription governs it alone.
- Narrow policies stand before those that cover their topics.
- Where there is any policy, one for all other topics stands last. It tells who takes nothing, and does nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headway.core.message import covers, spellings
from headway.migration.draft.tables import Keyed, comment, commented, key_line, table_text

REST = "everything else"
TELL: Mapping[str, Any] = {"when": {"blocked_time": "30s"}, "then": "notify"}
"""The rule for consumers about which the other system says nothing."""


@dataclass(eq=False)
class PolicyDraft:
    """A policy with its rules. ``subscriptions``: ``transient``, ``durable`` or ``all``."""

    name: str
    topics: tuple[str, ...]
    subscriptions: str
    listeners: tuple[str, ...]
    source: str
    rules: list[Keyed] = field(default_factory=list)

    @property
    def place(self) -> tuple[tuple[str, ...], str, tuple[str, ...]]:
        return self.topics, self.subscriptions, self.listeners

    def add(self, rule: Mapping[str, Any], source: str) -> None:
        """Adds a rule, unless it is there already."""
        if all(dict(rule) != one.value for one in self.rules):
            self.rules.append(Keyed(dict(rule), source))

    def narrower(self, other: PolicyDraft) -> bool:
        """Tells whether the other policy would hide this one."""
        if self.listeners != other.listeners:
            return bool(self.listeners) and not other.listeners
        return all(any(within(wide, topic) for wide in other.topics) for topic in self.topics)

    def text(self, faulty: Collection[str] = ()) -> str:
        """Writes its tables; as comments, if all of its listeners are comments. ``faulty`` are those that are."""
        listeners = [name for name in self.listeners if name not in faulty]
        keys = {"topics": Keyed(list(self.topics), "")}
        if self.subscriptions != "all":
            keys["subscriptions"] = Keyed(self.subscriptions, "")
        if self.listeners:
            keys["listeners"] = Keyed(listeners or list(self.listeners), "")
        blocks = [table_text("[[policy]]", {"name": Keyed(self.name, self.source), **keys})]
        for one in self.rules:
            lines = ["[[policy.rule]]", comment(one.source)]
            lines += [key_line(key, Keyed(item, "")) for key, item in one.value.items()]
            blocks.append("\n".join(lines) + "\n")
        text = "\n".join(blocks)
        return commented(text) if self.listeners and not listeners else text


def within(wide: str, topic: str) -> bool:
    """Tells whether a filter covers another as policies mean it: ``#`` covers queues, too, and ``$queue/+`` those with
    any name."""
    every = wide == "$queue/+" and topic.startswith("$queue/")
    return wide == "#" or every or any(covers(wide, one) for one in spellings(topic))


def ordered(policies: list[PolicyDraft]) -> list[PolicyDraft]:
    """Returns policies with rules, the narrow ones first, and one for everything else."""
    found: list[PolicyDraft] = []
    for policy in policies:
        if policy.rules:
            place = next((at for at, other in enumerate(found) if policy.narrower(other)), len(found))
            found.insert(place, policy)
    rest = uncovered(found)
    if found and rest:
        last = PolicyDraft(REST, ("#",), rest, (), "")
        last.add(TELL, "nothing is done to other consumers: it only tells")
        found.append(last)
    return found


def uncovered(policies: Iterable[PolicyDraft], listeners: tuple[str, ...] = ()) -> str:
    """Returns which subscriptions through these listeners no policy for all topics covers; empty: none."""
    kinds = {one.subscriptions for one in policies if one.rules and one.listeners == listeners and "#" in one.topics}
    if "all" in kinds or kinds == {"transient", "durable"}:
        return ""
    return next(iter({"transient", "durable"} - kinds)) if kinds else "all"


def rule(then: str | Mapping[str, Any], when: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Makes a rule. ``for`` is a keyword of Python, so it is written ``for_``."""
    named = {"name": more.pop("name")} if "name" in more else {}
    return {**named, "when": dict(when), **{key.rstrip("_"): item for key, item in more.items()}, "then": then}


def discard(which: str, **keep: Any) -> dict[str, Any]:
    """Makes the action ``discard``."""
    return {"action": "discard", "which": which, **keep}
