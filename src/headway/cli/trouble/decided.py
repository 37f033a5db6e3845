"""Headway's own decisions about the clients of a run, where the broker is Headway."""

from __future__ import annotations

from collections import Counter
from typing import Any

from headway.cli.admin import AdminClient
from headway.cli.errors import say
from headway.core.base import ConfigError, Reason
from headway.store.history import EntryKind, HistoryEntry, decode_entry

DECISIONS_MAX = 10_000
CLIENTS_OWN = frozenset({Reason.NORMAL, Reason.CLIENT_GONE})
"""Reasons of ends that nobody decided but the client."""


def decided(url: str | None, name: str, since_s: float, *, local: bool) -> list[dict[str, Any]] | None:
    """Asks the broker what it decided about the run's clients; None: it is not Headway, as far as can be known."""
    if url is None and not local:
        return None
    query = {"client": f"{name}-*", "since": f"{since_s - 1:.3f}", "kind": "all", "limit": str(DECISIONS_MAX)}
    try:
        _, lines = AdminClient(url).verdicts(query)
    except ConfigError as error:
        if url is not None:
            say(str(error))
        return None
    entries = [entry for line in reversed(lines) if (entry := decode_entry(line)) is not None]
    if not entries and url is None:
        return None  # another broker has this address
    told = [one for one in entries if one.fires or (one.kind is EntryKind.END and one.reason not in CLIENTS_OWN)]
    counts = Counter(_deed(one, name) for one in told)
    first = {_deed(one, name): one for one in reversed(told)}
    return [{"kind": deed[0], "action": deed[1], "cause": deed[2], "count": count,
             "text": first[deed].text or deed[1], "after_s": round(first[deed].wall_s - since_s, 1)}
            for deed, count in counts.most_common()]  # fmt: skip


def _deed(entry: HistoryEntry, name: str) -> tuple[str, str, str]:
    kind = entry.client.removeprefix(f"{name}-").rpartition("-")[0]
    what = entry.action.replace("_", " ") if entry.kind is EntryKind.VERDICT else f"ended: {entry.reason}"
    return kind, what + (" (dry run)" if entry.enforced is False else ""), str(entry.cause or "")
