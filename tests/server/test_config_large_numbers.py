"""Numbers that Python cannot hold, or cannot print, at every place of a config: each is a mistake in words."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from contextlib import suppress

import pytest
from tests.sim.seeds import seeds_of_the_day

from headway.core.base import ConfigError, parse_count, parse_duration, parse_rate, parse_share, parse_size
from headway.server.config import PRESETS, default_text, parse_settings, preset_text

ODD = [
    "9" * 400, "9" * 4000, "9" * 5000, "-" + "9" * 400, "0x" + "f" * 5000, "1e400", "inf", "-inf", "nan", "1e308",
    *(f'"{"9" * 400}{unit}"' for unit in ("", "s", "d", "GB", ".5GB", "%", "B/s")), f'"{"9" * 5000}"',
    *(f'"> {"9" * 400}{unit}"' for unit in ("", "s", "GB")), f'"> {"9" * 5000}"', '"> 1e999"', "9999-12-31T23:59:59Z",
    "[[[1]]]", "{a=1}", '""', '"\\u0000"', '"²s"',
]  # fmt: skip
MORE = """
[journal]
path = "/journal"
fsync = "5ms"
segment = "100kB"
[[topic]]
filter = "t/#"
keep = ["7d", "10GB"]
conflate = "1s"
[[policy]]
name = "x"
topics = ["#"]
[[policy.rule]]
when = { lag_records = "> 5", lag_bytes = "> 5MB", lag_age = "> 5s" }
for = "5s"
retries = 3
times = 3
then = { action = "discard", keep_records = 5, which = "newest" }
"""


@pytest.mark.parametrize("seed", seeds_of_the_day(range(4)))
def test_odd_number_anywhere_in_a_config_is_a_mistake_in_words(seed: int) -> None:
    rng = random.Random(seed)
    texts = [MORE, default_text(), *map(preset_text, PRESETS)]
    for _ in range(100):
        lines = rng.choice((MORE, rng.choice(texts))).splitlines()
        places = [
            (at, found) for at, line in enumerate(lines) if not line.lstrip().startswith("#")
            for found in re.finditer(r'"[^"]*"|\b\d[\d.]*', line)
        ]  # fmt: skip
        at, found = rng.choice(places)
        lines[at] = lines[at][: found.start()] + rng.choice(ODD) + lines[at][found.end() :]
        with suppress(ConfigError):
            parse_settings("\n".join(lines))


def test_number_with_too_many_digits_is_named() -> None:
    for number, text in (
        ("9" * 5000, "cannot be read: has a whole number of"),
        ("0x" + "f" * 5000, "journal.fsync: a who"),
    ):
        with pytest.raises(ConfigError, match=f"{text}.* 19 digits$"):
            parse_settings(f"[journal]\nfsync = {number}")


@pytest.mark.parametrize("parse", [parse_count, parse_duration, parse_rate, parse_share, parse_size])
def test_number_that_is_too_large_is_refused(parse: Callable[[object], object]) -> None:
    texts = ("9" * 400, "9" * 5000 + "GB", "9" * 400 + ".5", "9" * 400 + "d")
    for value in (10**400, -(10**5000), 1 << 99_999, float("inf"), *texts):
        with pytest.raises(ConfigError):
            parse(value)
