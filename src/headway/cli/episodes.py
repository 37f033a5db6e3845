"""Episodes: entries of the history as rows for people. A verdict and the one that steps it back are one episode;
episodes of a consumer that goes to and fro are folded into one row with a count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from headway.core.base import Cause
from headway.core.policy import ActionKind
from headway.store.history import EntryKind, HistoryEntry

_FINAL = ("disconnect", "delete_subscription")
FOLD_S = 600.0
"""Episodes with less than this between them are folded."""


class _Key(NamedTuple):
    """The things that two episodes must have in common to be folded."""

    run: str
    client: str
    filter: str
    policy: str
    rule: int
    action: str
    which: str
    enforced: bool | None
    kind: EntryKind


class Row:
    """One row: an episode, or several that were folded."""

    def __init__(self, entry: HistoryEntry) -> None:
        self.last = entry
        """The latest entry that fired, or the clear where the fire was earlier; it has the sentence."""
        self.began_s = self.ended_s = entry.wall_s
        """When the first episode began, and when the last one was last heard of."""
        self.count = 1
        self.seconds = 0.0
        """How long the rule was active, all episodes together, as far as their ends were recorded."""
        self.open = False
        """The end of the last episode is not recorded."""
        self.cleared = False
        """The rule stepped back."""
        self._causes: Counter[str] = Counter([str(entry.cause)] if entry.cause is not None else ())

    @property
    def cause(self) -> str:
        """The commonest cause; empty if none is known."""
        return self._causes.most_common(1)[0][0] if self._causes else ""

    def step_back(self, clear: HistoryEntry) -> None:
        self.count += max(0, clear.relapses - self.last.relapses)  # those that the broker has folded
        self.seconds, self.ended_s = clear.held_s, clear.wall_s
        self.open, self.cleared = False, True

    def cut(self, wall_s: float) -> None:
        """Ends an open episode, because the consumer went."""
        self.seconds, self.ended_s, self.open = wall_s - self.began_s, wall_s, False

    def fold(self, later: Row) -> None:
        self.last, self.ended_s, self.open = later.last, later.ended_s, later.open
        self.count += later.count
        self.seconds += later.seconds
        self._causes += later._causes


def to_rows(entries: Iterable[HistoryEntry], fold: bool = True) -> list[Row]:
    """Returns rows in the order of their ends. ``entries``: the oldest first."""
    rows: list[Row] = []
    latest: dict[_Key, Row] = {}
    open_of: dict[str, list[Row]] = {}
    """Rows of each client whose end is not known yet."""
    for entry in entries:
        key = _key(entry)
        before = latest.get(key)
        if entry.decision == "clear" and before is not None and not before.cleared:
            before.step_back(entry)
            continue
        row = latest[key] = Row(entry)
        rows.append(row)
        if entry.decision == "clear":  # it fired before the time that was asked for
            row.step_back(entry)
            row.began_s = entry.wall_s - entry.held_s
        elif entry.fires and _lasts(entry):
            row.open = True
            open_of.setdefault(entry.client, []).append(row)
        elif entry.kind is EntryKind.END:
            row.seconds = entry.lasted_s
        if entry.kind is EntryKind.END or (entry.enforced and entry.action in _FINAL):
            for one in open_of.pop(entry.client, []):
                if one.open and entry.filter in ("", one.last.filter) and one.last.run == entry.run:
                    one.cut(entry.wall_s)
    return sorted(_folded(rows) if fold else rows, key=lambda row: row.ended_s)


def _key(entry: HistoryEntry) -> _Key:
    return _Key(entry.run, entry.client, entry.filter, entry.policy, entry.rule, entry.action, entry.which,
                entry.enforced, entry.kind)


def _lasts(entry: HistoryEntry) -> bool:
    if entry.cause is Cause.OPERATOR:
        return False  # it was done once
    return entry.action not in list(ActionKind) or ActionKind(entry.action).stateful


def _folded(rows: list[Row]) -> list[Row]:
    kept: list[Row] = []
    latest: dict[_Key, Row] = {}
    for row in rows:
        key = _key(row.last)
        before = latest.get(key)
        if before is not None and row.began_s - before.ended_s <= FOLD_S:
            before.fold(row)
        else:
            latest[key] = row
            kept.append(row)
    return kept
