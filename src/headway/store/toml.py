"""Reads TOML files, and reports errors in plain words."""

from __future__ import annotations

import errno
import os
import re
import stat
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from headway.core.base import ConfigError, format_size

# -- toml --------------------------------------------------------------------------------------------------------------


FILE_BYTES_MAX = 4_000_000
DIGITS_MAX = 19
"""The most digits of a whole number: TOML has 64 bits for it."""
_LONG_NUMBER = re.compile(r"(?<![0-9A-Fa-f_])[0-9A-Fa-f_]{10000}")
"""Digits of a number so long that Python's parser takes a hundred bytes for each digit, and holds up all threads."""
KEY_WORK_MAX = 4_000_000
"""Limit of what the keys of a text cost Python's parser: for every part of a key it keeps all parts before, so one line
with a hundred thousand dots would take all memory that there is."""


class BadConfig(ConfigError):
    """The errors of a file, one per line in ``lines``."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = list(lines)


def open_regular(path: Path) -> BinaryIO:
    """Opens a regular file, or what a shell hands over (``--config <(envsubst < my.toml)``). Raises OSError for
    anything else: a read of a FIFO may wait for ever."""
    if str(path) == "/dev/stdin" or path.parent == Path("/dev/fd"):
        return path.open("rb")
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is not a regular file")
    return file


def read_text(path: Path, bytes_max: int = FILE_BYTES_MAX) -> str:
    """Returns the text of a file, without the byte order mark that some editors put first. Raises BadConfig."""
    try:
        with open_regular(path) as file:
            raw = file.read(bytes_max + 1)
        text = raw.decode("utf-8-sig")
    except OSError as error:
        raise BadConfig([f"{path}: cannot be read: {(error.strerror or str(error)).lower()}"]) from None
    except UnicodeDecodeError as error:
        raise BadConfig([f"{path}: is not text in UTF-8 (byte {error.start + 1})"]) from None
    if len(raw) > bytes_max:
        raise BadConfig([f"{path}: is larger than {format_size(bytes_max)}; is it the right file?"])
    return text


def parse_toml(text: str, where: str = "") -> dict[str, Any]:
    """Parses a text. ``where`` is put in front of errors. Raises BadConfig."""
    if _key_work(text) > KEY_WORK_MAX:
        raise BadConfig([f"{where}is nested too deep: there are lines with far too many dots"])
    if _LONG_NUMBER.search(text):
        raise BadConfig([f"{where}cannot be read: has a whole number of more than {DIGITS_MAX} digits"])
    try:
        # TOML knows lines by \n and \r\n only.
        found = tomllib.loads(text.removeprefix("\ufeff").replace("\r\n", "\n"))
        large = _too_large(found)
    except tomllib.TOMLDecodeError as error:
        raise BadConfig([f"{where}is not TOML: {lower_first(str(error))}"]) from None
    except ValueError as error:  # of a number with more digits than Python reads
        digits = "digits" in str(error)
        text = f"has a whole number of more than {DIGITS_MAX} digits" if digits else lower_first(str(error))
        raise BadConfig([f"{where}cannot be read: {text}"]) from None
    except RecursionError:
        raise BadConfig([f"{where}is nested too deep"]) from None
    if large:
        raise BadConfig([f"{where}{large}: a whole number has at most {DIGITS_MAX} digits"])
    return found


def _too_large(found: Any, name: str = "") -> str:
    """Returns the name of a value that is a larger number than TOML has; empty: there is none."""
    inside = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    if isinstance(found, int) and abs(found) >= 10**DIGITS_MAX:
        return name
    return next((large for key, value in inside if (large := _too_large(value, f"{name}.{key}".lstrip(".")))), "")


def values_in(found: Any) -> int:
    """Returns how many keys and elements there are in all, at any depth."""
    inside = found.values() if isinstance(found, dict) else found if isinstance(found, list) else ()
    return len(inside) + sum(map(values_in, inside))


def _key_work(text: str) -> int:
    """Returns what the keys may cost at most. A key is on one line, and has no more parts than that has dots, besides
    those of the table that it is in."""
    lines = text.split("\n")
    above = max((line.count(".") for line in lines if line.lstrip(" \t").startswith("[")), default=0)
    return sum(dots * (dots + above) for line in lines if (dots := line.count(".")))


def lower_first(text: str) -> str:
    """Begins a text in lower case, to continue a sentence after a colon."""
    return text[:1].lower() + text[1:]


# -- toml text ---------------------------------------------------------------------------------------------------------
#
# Policies and pools written as TOML, for a config.


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
