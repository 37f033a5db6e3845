"""A reload refuses a file that is cut or cannot be read, and the config that is in force stays."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from headway.core.base.errors import ConfigError
from headway.server.config.reading import load_settings, parse_settings
from headway.server.config.tls.certificates import _readable
from headway.server.logins import Logins
from headway.server.reloading import _later, _load

HASH = "$scrypt$ln=15,r=8,p=1$XbyA3LEuhqBIVi/AviazHA$pREvBNeJJ+qxWm25ehwMUEo0An6jpRzFZlpDrcyWbYk"
JOURNAL = '[journal]\npath = "{folder}/journal"\n'
LISTENERS = '[listeners.a]\nurl = "mqtt://127.0.0.1:0"\n[listeners.b]\nurl = "mqtt://127.0.0.1:0"\n'
USERS = f'[auth.users]\nann = "{HASH}"\n'
PERMISSION = '[[permission]]\nuser = "ann"\nsubscribe = ["a/#"]\n'
WHOLE = JOURNAL + LISTENERS + USERS + PERMISSION


@pytest.fixture
def again(tmp_path: Path) -> Callable[[str, str], None]:
    """Reads a config, and then another one as a reload does."""

    def read(first: str, second: str) -> None:
        source = tmp_path / "headway.toml"
        source.write_text(first.format(folder=tmp_path))
        running = load_settings(source)
        source.write_text(second.format(folder=tmp_path))
        loop = asyncio.new_event_loop()
        try:
            _load(running, Logins(running.auth, loop))
        finally:
            loop.close()

    return read


@pytest.mark.parametrize(
    ("second", "gone"),
    [
        ("", "users and no [[permission]] tables and no listeners that run and no [journal]"),
        (JOURNAL + LISTENERS, "users and no [[permission]] tables"),
        (JOURNAL + LISTENERS + USERS, "[[permission]] tables"),
        (LISTENERS + USERS + PERMISSION, "[journal]"),
        (JOURNAL + LISTENERS.replace("ners.", "ners.other_") + USERS + PERMISSION, "listeners that run"),
    ],
)
def test_a_reload_of_a_file_that_is_cut_is_refused(again: Callable[[str, str], None], second: str, gone: str) -> None:
    with pytest.raises(ConfigError) as error:
        again(WHOLE, second)
    assert f": has no {gone} any more, and the running broker has; if the file was being written" in str(error.value)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (WHOLE, WHOLE.replace("ann", "bob")),
        (WHOLE, WHOLE.replace("[listeners.b]", "[listeners.c]")),
        (LISTENERS, WHOLE),
        (LISTENERS, LISTENERS + "[server]\n"),
    ],
)
def test_a_reload_that_takes_only_some_away_is_not(
    again: Callable[[str, str], None], first: str, second: str
) -> None:
    again(first, second)


@pytest.mark.parametrize("pool", ['memory = "9MB"', 'max_client_share = "9%"', 'max_user_share = "9%"'])
def test_pools_wait_for_a_restart(pool: str) -> None:
    old, shared = parse_settings(LISTENERS), parse_settings(f"{LISTENERS}[pool]\n{pool}")
    assert _later(old, old) == []
    assert _later(old, shared) == ["[pool]"]
    assert _later(old, parse_settings(f"{LISTENERS}[listeners.b.pool]\n{pool}")) == ["[listeners]", "[pool]"]


def test_a_topics_pool_waits_for_a_restart() -> None:
    topic = '[[topic]]\nfilter = "a"\n'
    old, fresh = parse_settings(f"{LISTENERS}{topic}"), parse_settings(f'{LISTENERS}{topic}pool = "2MB"')
    assert _later(old, fresh) == ["[pool]", "[[topic]] pool"]
    assert _later(fresh, fresh) == []


def _named(path: Path) -> None:
    source = path.with_name("headway.toml")
    source.write_text(f'{LISTENERS}[auth]\npassword_file = "{path}"\n')
    load_settings(source)


def _certificate(path: Path) -> None:
    _readable(path, "listeners.a.tls", "-----BEGIN CERTIFICATE-----", "a certificate")


@pytest.mark.parametrize("read", [load_settings, _named, _certificate])
def test_a_fifo_is_refused_and_nobody_waits_for_its_writer(read: Callable[[Path], object], tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(ConfigError, match="cannot be read: it is not a regular file"):
        read(path)


def test_a_config_may_come_from_a_pipe_that_a_shell_hands_over() -> None:
    reader, writer = os.pipe()
    os.write(writer, b'[listeners.here]\nurl = "mqtt://127.0.0.1:0"\n')
    os.close(writer)
    assert list(load_settings(Path(f"/dev/fd/{reader}")).listeners) == ["here"]
    os.close(reader)
