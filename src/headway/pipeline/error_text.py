"""Errors of Spark and its Python workers in one line: the part that a person can act on."""

from __future__ import annotations

import re

_END = re.compile(r"^(?:=== Streaming Query ===|JVM stacktrace:)$", re.MULTILINE)
"""The end of the message; the rest is Spark's own context."""
_OURS = re.compile(r"^headway\.\S+: (.+)$", re.MULTILINE)
"""The line with which Python shows an error of ours below its traceback; the next one, that of any error."""
_PYTHONS = re.compile(r"^(?!SQLSTATE)[A-Za-z_][\w.]*: (.+)$", re.MULTILINE)
_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] (.+?)(?: SQLSTATE: \w+)?$", re.MULTILINE)
_CLASS = re.compile(r"^(?:\([A-Z0-9_.]+\) |\[[A-Z0-9_.]+\] )+")
_STATE = re.compile(r"\.?\s*SQLSTATE: \w{5}")


def error_text(error: BaseException | str) -> str:
    """Returns the error's line without its stack, class names and codes."""
    text = _END.split(str(error))[0]
    for pattern in (_OURS, _RAISED):
        if found := pattern.findall(text):
            return str(found[-1]).strip()
    found = _PYTHONS.findall(text) if "Traceback (most recent call last)" in text else []
    line = found[-1] if found else text.strip().splitlines()[0]
    return _STATE.sub("", _CLASS.sub("", line)).strip().rstrip(";")
