"""The log as JSON lines, for systems that collect logs: one object per line.

Each has ``time`` (RFC 3339, UTC), ``level``, ``logger`` and ``message``; ``exception``, if there was one; and the
fields of what it tells, such as ``client``, ``listener``, ``reason`` and ``cause``. A logging call gives these as
``extra``, in one dictionary ``fields``, beside the words for people.

With JSON the log has verdicts as well (logger ``headway.verdicts``); in words they would repeat what ends of
connections say.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any

import msgspec

from headway.core.policy import Verdict, VerdictBook

_verdicts = logging.getLogger("headway.verdicts")


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = getattr(record, "fields", {})
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds")[:-6] + "Z",
            "level": record.levelname.lower(), "logger": record.name, "message": record.getMessage(),
        }  # fmt: skip
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        known = {name: value for name, value in fields.items() if value not in ("", None)}
        return msgspec.json.encode(known | line, enc_hook=str).decode()


def begin_log(form: str) -> None:
    """Sends the log to standard error. ``form``: ``text`` or ``json``."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else logging.Formatter("%(asctime)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def log_verdicts(book: VerdictBook) -> None:
    """Logs each verdict, before what is done with it otherwise."""
    keep = book.keep

    def both(verdict: Verdict, user: str) -> None:
        _log(verdict, user)
        keep(verdict, user)

    book.keep = both


def _log(verdict: Verdict, user: str) -> None:
    _verdicts.info("%s", verdict.text, extra={"fields": {
        "number": verdict.number, "client": verdict.client, "user": user, "filter": verdict.filter,
        "listener": verdict.listener, "policy": verdict.policy, "rule": verdict.rule or None, "kind": verdict.kind,
        "action": verdict.action.word, "reason": verdict.reason, "cause": verdict.cause, "enforced": verdict.enforced,
    }})  # fmt: skip
