"""Sizes, shares, durations and rates: parsed from the text that people write, and formatted for them.

Rules:
- ``kB MB GB TB`` are powers of 1000, as on a disk's label; ``KiB MiB GiB TiB`` are powers of 1024. ``KB`` is read as
  ``kB``. Otherwise the case of letters matters: ``Mb`` would be a megabit, and is refused.
- A bare number is in the base unit: bytes, seconds, bytes per second, a fraction of one. Written as a *string*, a
  duration needs its unit (``"30"`` of what?), and a share is a percentage or a fraction (``"50%"``, ``"0.5"``).
- No value is negative, infinite or not-a-number. Text that cannot be read raises :class:`ConfigError` with one clear
  line.
- The ``format_*`` functions write for people, rounded to about three digits; the ``parse_*`` functions read that again.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from headway.core.base.errors import ConfigError

# -- units -------------------------------------------------------------------------------------------------------------


_SIZE_UNITS = {
    "": 1, "B": 1,
    "kB": 1000, "KB": 1000, "MB": 1000**2, "GB": 1000**3, "TB": 1000**4,
    "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4,
}  # fmt: skip
_TIME_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}

DURATION_CHARS_MAX = 100
DIGITS_MAX = 30
"""The most characters that a number in a text may have, with its point and underscores."""
_NUMBER = r"(\d+(?:_\d+)*(?:\.\d+)?|\.\d+)"
_SIZE = re.compile(rf"{_NUMBER}\s*([A-Za-z]*)")
_TIME = re.compile(rf"{_NUMBER}\s*([a-z]+)\s*")
_SHARE = re.compile(rf"{_NUMBER}\s*(%?)")


def parse_number(value: object, what: str = "a number") -> float:
    """Returns a plain number that is finite and not negative. ``True`` is not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{_shown(value)} is not {what}")
    try:
        number = float(value)
    except OverflowError:  # a whole number of more than 308 digits
        number = math.inf
    if not math.isfinite(number) or number < 0:
        raise ConfigError(f"{_shown(value)} is not {what}: it must be finite and not negative")
    return number


def parse_count(value: object) -> int:
    """Returns a whole number, from a number or a string of digits (``"10_000"``)."""
    if isinstance(value, str) and re.fullmatch(r"\d+(_\d+)*", value.strip()):
        return int(_checked_digits(value.strip(), value))
    number = parse_number(value, "a whole number")
    if number != int(number):
        raise ConfigError(f"{_shown(value)} is not a whole number")
    return int(number)


def parse_size(value: object) -> int:
    """Returns bytes, from a number of bytes or a string such as ``"64MB"``, ``"10KiB"``, ``"1.5 GB"``."""
    hint = 'a size such as 4096, "64MB" or "10KiB"'
    if not isinstance(value, str):
        number = parse_number(value, hint)
        if number != int(number):
            raise ConfigError(f"{_shown(value)} is not {hint}: bytes are whole")
        return int(number)
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        raise ConfigError(f"{_shown(value)} is not {hint}")
    unit = match[2]
    if unit not in _SIZE_UNITS:
        right = [known for known in _SIZE_UNITS if known != "KB" and known.lower() == unit.lower()]
        guess = f" (did you mean {right[0]}?)" if right else ": units are B, kB, MB, GB, TB and KiB, MiB, GiB, TiB"
        raise ConfigError(f"{_shown(value)}: unknown unit {unit!r}{guess}")
    if "." not in match[1]:
        return int(_checked_digits(match[1], value)) * _SIZE_UNITS[unit]
    return round(float(_checked_digits(match[1], value)) * _SIZE_UNITS[unit])


def parse_share(value: object) -> float:
    """Returns a fraction from 0 to 1, from a number such as ``0.5`` or a string such as ``"50%"``."""
    hint = 'a share such as "50%" or 0.5'
    if isinstance(value, str):
        match = _SHARE.fullmatch(value.strip())
        if match is None:
            raise ConfigError(f"{_shown(value)} is not {hint}")
        share = float(match[1]) / (100 if match[2] else 1)
    else:
        share = parse_number(value, hint)
    if share > 1:
        bare = share <= 100 and not str(value).strip().endswith("%")
        percent = f'; for {share:g} percent write "{share:g}%"' if bare else ""
        raise ConfigError(f"{_shown(value)} is not {hint}: it is more than the whole{percent}")
    return share


def parse_duration(value: object) -> float:
    """Returns seconds, from a number of seconds or a string such as ``"500ms"``, ``"30s"``, ``"1h 30m"``, ``"7d"``."""
    hint = 'a duration such as "500ms", "30s", "5m", "1h" or "7d"'
    if not isinstance(value, str):
        return parse_number(value, hint)
    if len(value) > DURATION_CHARS_MAX:
        raise ConfigError(f"{_shown(value)} is not {hint}: it has more than {DURATION_CHARS_MAX} characters")
    text = value.strip()
    if text == "0":
        return 0.0
    total, position = 0.0, 0
    while position < len(text):
        match = _TIME.match(text, position)
        if match is None:
            missing = f': its unit is missing; for seconds write "{text}s"' if re.fullmatch(_NUMBER, text) else ""
            raise ConfigError(f"{_shown(value)} is not {hint}{missing}")
        if match[2] not in _TIME_UNITS:
            raise ConfigError(f"{_shown(value)}: unknown unit {match[2]!r}: units are ms, s, m, h, d, w")
        total += float(_checked_digits(match[1], value)) * _TIME_UNITS[match[2]]
        position = match.end()
    if not text:
        raise ConfigError(f"{_shown(value)} is not {hint}")
    return total


def parse_rate(value: object) -> float:
    """Returns bytes per second, from a number or a string such as ``"5000B/s"``, ``"1MB/s"``."""
    hint = 'a rate such as "5000B/s" or "1MB/s"'
    if not isinstance(value, str):
        return parse_number(value, hint)
    size, slash, per = value.strip().partition("/")
    if (slash and per.strip() != "s") or (not slash and not size.isdecimal()):
        raise ConfigError(f"{_shown(value)} is not {hint}: rates are per second, written /s")
    try:
        return float(parse_size(size))
    except ConfigError:
        raise ConfigError(f"{_shown(value)} is not {hint}") from None


def format_count(value: float) -> str:
    """Formats a number: ``12,408``; a fraction keeps one digit."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


def format_size(value: float) -> str:
    """Formats bytes: ``999 B``, ``1.6 MB``, ``64 MB``."""
    for unit, scale in (("TB", 1000**4), ("GB", 1000**3), ("MB", 1000**2), ("kB", 1000)):
        if value >= scale * 0.9995:
            return f"{_digits(value / scale)} {unit}"
    return f"{value:.0f} B"


def format_rate(value: float) -> str:
    """Formats bytes per second: ``5 kB/s``."""
    return f"{format_size(value)}/s"


def format_share(value: float) -> str:
    """Formats a fraction: ``50 %``."""
    return f"{_digits(value * 100)} %"


def format_duration(value: float) -> str:
    """Formats seconds: ``3 ms``, ``31.2 s``, ``2 min 5 s``, ``1 h 30 min``, ``7 d``."""
    if value < 0.0005:
        return "0 s" if value < 5e-7 else f"{value * 1e6:.0f} us"
    if value < 0.9995:
        return f"{value * 1000:.0f} ms"
    if value < 119.95:
        return f"{_digits(value, 1)} s"
    seconds = round(value)
    for big, small, big_s, small_s in (("d", "h", 86400, 3600), ("h", "min", 3600, 60), ("min", "s", 60, 1)):
        if seconds >= big_s:
            rest = (seconds % big_s) // small_s
            return f"{seconds // big_s} {big}" + (f" {rest} {small}" if rest else "")
    raise AssertionError("a duration of two minutes or more has minutes")


def _digits(value: float, most: int = 2) -> str:
    """Formats about three digits, without trailing zeros and never in scientific notation."""
    places = 0 if value >= 100 else 1 if value >= 10 else 2
    text = f"{value:.{min(places, most)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _checked_digits(text: str, value: object) -> str:
    """Returns the text of a number. Raises ConfigError if it has so many digits that Python's numbers end."""
    if len(text) > DIGITS_MAX:
        raise ConfigError(f"{_shown(value)} is too large: a number has at most {DIGITS_MAX} digits")
    return text


def _shown(value: object) -> str:
    """Returns the value as it is in the TOML file, cut to 60 characters."""
    if isinstance(value, int) and abs(value) >= 10**60:
        return "a number of more than 60 digits"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = f'"{value}"' if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else text[:57] + '..."'


# -- names -------------------------------------------------------------------------------------------------------------
#
# The names of meters or actions that a config may use: the built-in and the plugged-in ones.
#
# The core does not know how plug-ins are found. The server sets a function (``elsewhere``), which is called for a name
# that is not built in. It returns the names that there are and how each is loaded. What was loaded stays.


T = TypeVar("T")


class Names(dict[str, T]):
    """The built-in and the loaded ones by name."""

    def __init__(self, what: str, built_in: Mapping[str, T], beside: Sequence[str] = ()) -> None:
        """``what`` is their word in messages. ``beside`` are other words that a config may have instead of a name."""
        super().__init__(built_in)
        self.what = what
        self._beside = beside
        self.made: dict[str, T] = {}
        """Those that were made of what a config says. They are found by their names, and not listed."""
        self.elsewhere: Callable[[], Mapping[str, Callable[[], T]]] = dict

    def __missing__(self, name: str) -> T:
        return self.made[name]

    def known(self) -> list[str]:
        """Returns all names that there are."""
        return list(dict.fromkeys([*self, *self.elsewhere()]))

    def knows(self, name: object) -> bool:
        return name in self or name in self.elsewhere()

    def find(self, name: object, others: Callable[[], Sequence[str]] = tuple) -> T:
        """Returns the one of this name. Raises ConfigError with the names that there are, or what loading it raises.
        ``others`` gives names that could be meant, too. It is not called if the name is built in, because a look
        among the installed plug-ins reads many files."""
        if not isinstance(name, str) or name not in self:
            elsewhere = self.elsewhere()
            if not isinstance(name, str) or name not in elsewhere:
                raise unknown(self.what, name, list(dict.fromkeys([*self, *elsewhere, *others(), *self._beside])))
            self[name] = elsewhere[name]()
        return self[name]


def unknown(what: str, word: object, known: Sequence[str]) -> ConfigError:
    """Returns an error such as ``unknown meter 'lag_rekords' (did you mean lag_records?)``."""
    near = difflib.get_close_matches(str(word), known, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
    return ConfigError(f"unknown {what} {str(word)[:60]!r} ({hint})")
