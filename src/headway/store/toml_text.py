"""Policies and pools written as TOML, for a config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def policy_text(policies: Sequence[Mapping[str, Any]], pool: Mapping[str, Any] | None = None) -> str:
    """Writes ``[pool]`` and ``[[policy]]`` tables."""
    blocks = []
    if pool:
        blocks.append("[pool]\n" + "".join(f"{key} = {value(item)}\n" for key, item in pool.items()))
    for policy in policies:
        blocks.append("[[policy]]\n" + _keys(policy, "rule"))
        blocks += ["[[policy.rule]]\n" + _keys(rule) for rule in policy.get("rule", ())]
    return "\n".join(blocks)


def _keys(table: Mapping[str, Any], without: str = "") -> str:
    return "".join(f"{key} = {value(item)}\n" for key, item in table.items() if key != without)


def value(item: Any) -> str:
    """Writes a value, tables and lists in one line."""
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, int | float):
        return repr(item)
    if isinstance(item, Mapping):
        return "{ " + ", ".join(f"{toml_key(key)} = {value(inner)}" for key, inner in item.items()) + " }"
    if isinstance(item, list | tuple):
        return "[" + ", ".join(value(inner) for inner in item) + "]"
    return quoted(str(item))


def toml_key(text: str) -> str:
    return text if text.replace("_", "").replace("-", "").isalnum() and text.isascii() else quoted(text)


def quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in escaped) + '"'
