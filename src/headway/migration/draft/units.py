"""Numbers, sizes and times of other systems, and how a config of Headway writes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from headway.core.message import BadTopic, validate_filter
from headway.migration.formats import Node
from headway.migration.hiding import hide

# -- units -------------------------------------------------------------------------------------------------------------


KIB = 1024
POOL_BYTES_MIN = 1_000_000
BINARY: Mapping[str, int] = {
    "": 1, "b": 1, "k": KIB, "kb": KIB, "m": KIB**2, "mb": KIB**2, "g": KIB**3, "gb": KIB**3, "t": KIB**4,
    "tb": KIB**4, "kib": KIB, "mib": KIB**2, "gib": KIB**3, "tib": KIB**4, "ki": KIB, "mi": KIB**2, "gi": KIB**3,
    "ti": KIB**4,
}  # fmt: skip
"""Units of systems that write ``mb`` for 1024 x 1024 bytes, whatever the case of letters."""
_SIZE = re.compile(r"([0-9][0-9_]*(?:\.[0-9]+)?)\s*([A-Za-z]*)")
_TIMES = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZES = (("GiB", KIB**3), ("GB", 1000**3), ("MiB", KIB**2), ("MB", 1000**2), ("KiB", KIB), ("kB", 1000))


SECRET = "a secret stands in it, which is not repeated"
"""Why a value cannot be carried over, though it has a counterpart."""


class Unreadable(ValueError):
    """A value that is not of its kind: a placeholder, say, or a word where a number should be. ``node``: the setting
    that has it, where others go with it."""

    def __init__(self, text: str, node: Node | None = None) -> None:
        super().__init__(text)
        self.node = node


class SoAnyway(ValueError):
    """A value that needs no line here, because it is so anyway; empty: the option's own words say why."""


def number(node: Node | None, default: int = 0) -> int:
    """Returns a whole number, which may be negative; ``default``: there is no such setting. Raises Unreadable."""
    if node is None:
        return default
    text = node.text.strip().replace("_", "")
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        raise _not(node, "a whole number")
    return int(text)


def limit(node: Node, read: Callable[[Node], int] = number) -> int:
    """Returns what ``read`` makes of a limit. Raises Unreadable if it is less than 0, SoAnyway if it is 0, which stands
    for none."""
    value = not_negative(read(node), node)
    if not value:
        raise SoAnyway("0 is no limit")
    return value


def not_negative(value: int, node: Node | None) -> int:
    """Returns the value of a setting. Raises Unreadable if it is less than 0."""
    if value < 0:
        raise Unreadable(f"{node.shown[:60] if node is not None else value}: is less than 0", node)
    return value


def port_of(text: str) -> int:
    """Returns the number of a port; 0: it is none."""
    return int(text) if re.fullmatch(r"[0-9]{1,5}", text.strip()) else 0


def size(node: Node, units: Mapping[str, int] = BINARY) -> int:
    """Returns bytes. Raises Unreadable."""
    match = _SIZE.fullmatch(node.text.strip())
    if match is None or match[2].lower() not in units or len(match[1]) > 18:
        raise _not(node, "a size")
    return round(float(match[1].replace("_", "")) * units[match[2].lower()])


def within(value: int, low: int, high: int, node: Node, words: str = "") -> int:
    """Returns a value that is in a range. ``words``: the range for people. Raises Unreadable."""
    if not low <= value <= high:
        raise Unreadable(f"{node.shown[:60]}: from {words or f'{low:,} to {high:,}'}")
    return value


def set_or(value: int, default: str) -> int:
    """Returns a value that is set. Raises SoAnyway if it is 0 or less, which stands for ``default``."""
    if value < 1:
        raise SoAnyway(default)
    return value


def pool_memory(size_bytes: int, node: Node) -> str:
    """Writes the memory of a pool. Raises Unreadable."""
    if size_bytes < POOL_BYTES_MIN:
        raise Unreadable(f"{node.shown[:60]}: a pool has 1 MB at least")
    return toml_size(size_bytes)


def milliseconds(node: Node | None, unit: str = "ms", default_ms: int = 0) -> int:
    """Returns milliseconds, from a number in ``unit`` or a text such as ``30s``; ``default_ms``: there is no such
    setting. Raises Unreadable."""
    if node is None:
        return default_ms
    text = node.text.strip()
    if re.fullmatch(r"[+-]?[0-9]{1,15}", text):
        return int(text) * _TIMES[unit]
    parts = re.findall(r"([0-9]{1,12}(?:\.[0-9]+)?)\s*(ms|[smhd])", text)
    if not parts or "".join(f"{value}{word}" for value, word in parts) != text.replace(" ", ""):
        raise _not(node, "a time")
    return round(sum(float(value) * _TIMES[word] for value, word in parts))


def origin(text: str) -> str:
    """Returns the origin of a page. Raises Unreadable."""
    if not re.fullmatch(r"\*|null|[a-z][a-z0-9+.-]*://(\*\.)?[0-9A-Za-z._-]+(:[0-9]{1,5})?", text):
        raise Unreadable(f"{hide(text)[:60]!r} is not the origin of a page")
    return text


def true(node: Node) -> bool:
    """Returns whether a setting is on. Raises Unreadable."""
    word = node.text.strip().lower()
    if word in ("true", "yes", "on", "1", "enabled"):
        return True
    if word in ("false", "no", "off", "0", "disabled"):
        return False
    raise _not(node, "true or false")


def required(node: Node) -> str:
    """Returns whether clients have to show certificates, as the key ``verify`` says it. Raises Unreadable."""
    return "required" if true(node) else "none"


def as_written(node: Node) -> str:
    return node.text


def same_size(node: Node, units: Mapping[str, int] = BINARY) -> str:
    """Writes the size that a setting has. Raises Unreadable."""
    return toml_size(size(node, units))


def same_time(node: Node, unit: str = "ms") -> str:
    """Writes the time that a setting has. Raises Unreadable."""
    return toml_duration(not_negative(milliseconds(node, unit), node))


def size_limit(node: Node) -> str:
    """Writes the size of a limit. Raises as ``limit`` does."""
    return toml_size(limit(node, size))


def time_limit(node: Node) -> str:
    """Writes the time of a limit. Raises as ``limit`` does."""
    return toml_duration(limit(node, milliseconds))


def toml_size(size_bytes: int) -> str:
    """Writes a size as a config does, exactly. Raises Unreadable."""
    not_negative(size_bytes, None)
    for unit, scale in _SIZES:
        if size_bytes and size_bytes % scale == 0:
            return f"{size_bytes // scale}{unit}"
    return f"{size_bytes}B"


def toml_duration(time_ms: int) -> str:
    """Writes a time as a config does, exactly. Raises Unreadable."""
    not_negative(time_ms, None)
    for unit in ("d", "h", "m", "s"):
        if time_ms and time_ms % _TIMES[unit] == 0:
            return f"{time_ms // _TIMES[unit]}{unit}"
    return f"{time_ms}ms"


def _not(node: Node, what: str) -> Unreadable:
    return Unreadable(f"{node.shown[:60]!r} is not {what}", node)


# -- names -------------------------------------------------------------------------------------------------------------
#
# Names of topics and queues: the wildcards of other systems, written as filters of MQTT.


def from_dotted(name: str, *, rest: str = ">") -> str:
    """Returns the filter for a name such as ``stocks.us.*`` or ``stocks.>``. Raises Unreadable."""
    levels: list[str] = []
    words = name.split(".")
    for position, word in enumerate(words, 1):
        if word == rest:
            if position < len(words):
                raise Unreadable(f"{hide(name)!r}: {rest} stands for several levels at the end only")
            levels.append("#")
        elif word == "*":
            levels.append("+")
        elif set(word) & {"*", rest, "+", "#", "/"}:
            raise Unreadable(f"{hide(name)!r}: a wildcard stands for a whole level, not for a part of one")
        else:
            levels.append(word)
    return _valid("/".join(levels), name)


def from_words(key: str) -> str:
    """Returns the filter for a binding key of AMQP's topic exchanges. Raises Unreadable."""
    return from_dotted(key, rest="#")


def queue_filter(name: str, *, every: tuple[str, ...] = (), rest: str = "") -> str:
    """Returns the filter for a queue, or for all where the name is one of ``every``. ``rest``: the wildcard for all
    further words, in a system that has patterns of names; empty: it has none. Raises Unreadable."""
    if name in every:
        return "$queue/+"
    if set(name) & set("*>+#/"):
        if rest:
            return _valid(f"$queue/{from_dotted(name, rest=rest)}", name)
        shown = hide(name)
        raise Unreadable(f"{shown!r}: a policy is for one queue or for all ($queue/+), not for this pattern of names")
    return _valid(f"$queue/{name}", name)


def _valid(filter: str, name: str) -> str:
    if hide(name) != name:
        raise Unreadable(f"{hide(name)!r}: {SECRET}")
    try:
        return validate_filter(filter)
    except BadTopic as error:
        raise Unreadable(f"{name!r}: {error}") from None
