"""Entries of the history: one verdict, or the end of one connection. Each is a line of JSON.

Fields that are empty are left out of the line. A reader ignores fields that it does not know.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import msgspec

from headway.core.base import Cause, Reason
from headway.core.policy import ActionKind, Reading, Verdict

FILTER_CHARS_MAX = 500
TEXT_CHARS_MAX = 2_000


class EntryKind(StrEnum):
    """The kinds of entries. Each has files of its own, so that one cannot push out the other."""

    VERDICT = "verdict"
    END = "end"


class HistoryEntry(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One line of the history."""

    wall_s: float
    """Seconds since 1970."""
    time: str
    """The same in UTC, as ISO 8601 has it."""
    kind: EntryKind
    run: str
    """The start of the broker that wrote it. Numbers begin anew with each."""
    client: str
    user: str = ""
    listener: str = ""
    number: int = 0
    """The verdict's number in its run."""
    decision: str = ""
    """``fire``, or ``clear`` when a rule stepped back."""
    filter: str = ""
    policy: str = ""
    """Empty where no policy decided (pressure on a pool)."""
    rule: int = 0
    action: str = ""
    """The action as a config has it; a plugged-in action by its name."""
    which: str = ""
    """The records that a discard drops."""
    enforced: bool | None = None
    cause: Cause | None = None
    reason: str
    readings: tuple[Reading, ...] = ()
    window_s: float = 0.0
    held_s: float = 0.0
    """For a fire, how long the condition had held; for a clear, how long the rule was active."""
    relapses: int = 0
    """How often the consumer has relapsed since it began to go to and fro."""
    address: str = ""
    lasted_s: float = 0.0
    """How long the connection lasted."""
    admitted: bool | None = None
    """The client had a session."""
    text: str = ""

    @property
    def fires(self) -> bool:
        return self.decision == "fire"

    def verdict(self) -> dict[str, Any]:
        """Returns the verdict as ``GET /v1/why`` shows verdicts. It has no sample: entries do not keep it."""
        kind = self.action if self.action in list(ActionKind) else str(ActionKind.PLUGIN)
        name = self.action if kind != self.action else ""
        return {
            "number": self.number, "wall_s": self.wall_s, "client": self.client, "user": self.user,
            "filter": self.filter, "listener": self.listener, "policy": self.policy, "rule": self.rule,
            "kind": self.decision, "action": {"kind": kind, "which": self.which or None, "name": name},
            "reason": self.reason, "cause": self.cause, "enforced": self.enforced is not False,
            "readings": self.readings, "window_s": self.window_s, "held_s": self.held_s, "relapses": self.relapses,
            "text": self.text,
            "run": self.run,
        }  # fmt: skip

    def end(self) -> dict[str, Any]:
        """Returns the end as ``GET /v1/why`` shows ends."""
        return {
            "wall_s": self.wall_s, "client": self.client, "username": self.user, "listener": self.listener,
            "address": self.address, "lasted_s": self.lasted_s, "admitted": self.admitted is not False,
            "reason": self.reason, "text": self.text,
        }  # fmt: skip


def verdict_entry(verdict: Verdict, user: str, run: str) -> HistoryEntry:
    """Returns the entry for a verdict about a client that logged in as ``user``."""
    return HistoryEntry(
        wall_s=round(verdict.wall_s, 3), time=utc(verdict.wall_s), kind=EntryKind.VERDICT, run=run,
        client=verdict.client, user=user, listener=verdict.listener, number=verdict.number, decision=verdict.kind,
        filter=verdict.filter[:FILTER_CHARS_MAX], policy=verdict.policy, rule=verdict.rule, action=verdict.action.word,
        which=verdict.action.which or "", enforced=verdict.enforced, cause=verdict.cause, reason=verdict.reason,
        readings=verdict.readings, window_s=verdict.window_s, held_s=round(verdict.held_s, 3),
        relapses=verdict.relapses, text=verdict.text[:TEXT_CHARS_MAX],
    )  # fmt: skip


def end_entry(
    *, wall_s: float, client: str, user: str, listener: str, address: str, lasted_s: float, admitted: bool,
    reason: Reason, text: str, run: str,
) -> HistoryEntry:  # fmt: skip
    """Returns the entry for the end of a connection."""
    return HistoryEntry(
        wall_s=round(wall_s, 3), time=utc(wall_s), kind=EntryKind.END, run=run, client=client, user=user,
        listener=listener, address=address, lasted_s=lasted_s, admitted=admitted, reason=reason, text=text,
    )  # fmt: skip


def utc(wall_s: float) -> str:
    return datetime.fromtimestamp(wall_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


encode_entry = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(HistoryEntry).decode


def decode_entry(line: bytes) -> HistoryEntry | None:
    """Returns the entry of a line; None: the line is torn, or not of a history."""
    try:
        return _decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
