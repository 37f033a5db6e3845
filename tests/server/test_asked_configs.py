"""Who may only look may ask what a config would do, with any text: nobody else notices."""

from __future__ import annotations

import asyncio
import sys
import threading
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.server.served import serve

from headway.core.log import Pool
from headway.core.policy import Sample
from headway.server.admin.api import Admin
from headway.server.config.reading import parse_settings
from headway.server.console import replay as module
from headway.server.console.hour import Hour, Terms
from headway.server.console.rows import Known, Name
from headway.server.http import asked_configs
from headway.store.toml import BadConfig, parse_toml

PATHS = ["/v1/preview", "/v1/console/replay"]


async def asked(served: Admin, path: str, body: bytes, kind: str = "text/plain", more: str = "") -> bytes:
    """``more``: a head of its own instead of the body's length."""
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(served.url).port)
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: {kind}\r\n"
    writer.write((head + (more or f"Content-Length: {len(body)}\r\n") + "\r\n").encode() + body)
    answer = await reader.read()
    writer.close()
    return answer


@pytest.mark.parametrize("charset", ["punycode", "undefined", "idna", "utf-7", "unicode_escape"])
def test_charsets_that_take_hours_are_not_read(tmp_path: Path, charset: str) -> None:
    async def play(served: Admin) -> None:
        for path in PATHS:
            answer = await asked(served, path, b"-" + b"b" * 100, f"text/plain; charset={charset}")
            assert answer.startswith(b"HTTP/1.1 400 ")
            assert b"is not known here; send UTF-8" in answer

    serve(tmp_path, play)


@pytest.mark.parametrize("text", [
    ".".join(["a"] * 20_000) + " = 1", "[" + ".".join(["a"] * 20_000) + "]\nb = 1",
    "[" + ".".join(["a"] * 1000) + "]\n" + "".join(f"b{n}.c.c.c.c = 1\n" for n in range(1000)),
    "x = {" + ", ".join(f"a{n}" + ".b" * 100 + " = 1" for n in range(200)) + "}",
])  # fmt: skip
def test_keys_with_very_many_parts_are_refused(text: str) -> None:
    """Python's parser keeps all parts before each part: a hundred thousand of them were all memory of the machine."""
    with pytest.raises(BadConfig, match="nested too deep"):
        parse_toml(text)


def test_a_number_that_python_does_not_read_is_said_plainly() -> None:
    with pytest.raises(BadConfig, match="digits"):
        parse_toml("a = " + "9" * 5000)


def test_long_numbers_are_not_given_to_the_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    """It took 120 MB for a million digits, and held up all threads meanwhile."""
    monkeypatch.setattr("tomllib.loads", lambda _: pytest.fail("it was parsed"))
    for text in ("9" * 20_000, "0x" + "f" * 20_000, "1_" * 10_000 + "1", "1." + "0" * 20_000):
        with pytest.raises(BadConfig, match="digits"):
            parse_toml(f"a = {text}")


def test_very_many_values_of_a_stranger_are_not_checked_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tomllib.loads", lambda _: pytest.fail("it was parsed"))
    for line in ("k{} = 1\n", '[[policy]]\nname = "p{}"\n', "[[p{}]]\n"):
        with pytest.raises(BadConfig, match="more than 10,000 values"):
            parse_settings("".join(line.format(number) for number in range(11_000)), reads_files=False)
    monkeypatch.undo()
    with pytest.raises(BadConfig, match="more than 10,000 values"):
        parse_settings(f"k = {[1] * 11_000}", reads_files=False)
    text = "".join(f"k{number} = 1\n" for number in range(11_000))
    with pytest.raises(BadConfig) as refused:
        parse_settings(text, reads_files=False)
    assert len(refused.value.lines) == 1
    with pytest.raises(BadConfig) as told:
        parse_settings(text)
    assert len(told.value.lines) == 11_000


def test_only_the_first_mistakes_are_told(tmp_path: Path) -> None:
    text = "".join(f"k{number} = 1\n" for number in range(3000)).encode()

    async def play(served: Admin) -> None:
        answer = await asked(served, "/v1/preview", text)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert b"and 2,900 more" in answer
        assert len(answer) < 50_000

    serve(tmp_path, play)


def test_dots_in_values_are_no_matter() -> None:
    hosts = [f"https://a{number}.b.example.com" for number in range(400)]
    assert parse_toml(f"[a.b]\norigins = {hosts}\n" + "".join(f"k{n}.a.b = 1.5\n" for n in range(10_000)))["a"]["b"]


@pytest.mark.parametrize("path", PATHS)
def test_a_config_is_read_beside_the_loop_and_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    at_once: list[int] = []
    reading: set[int] = set()

    def slow(text: str, **_: object) -> Any:
        reading.add(threading.get_ident())
        at_once.append(len(reading))
        assert threading.current_thread() is not threading.main_thread()
        threading.Event().wait(0.05)
        reading.discard(threading.get_ident())
        return parse_settings(text)

    monkeypatch.setattr(asked_configs, "parse_settings", slow)
    monkeypatch.setattr(asked_configs, "WAITING_MAX", 8)  # half of them for one client

    async def play(served: Admin) -> None:
        answers = await asyncio.gather(*(asked(served, path, b"") for _ in range(6)))
        statuses = sorted(answer[9:12] for answer in answers)
        assert statuses == [b"200"] * 4 + [b"503"] * 2
        assert at_once == [1] * 4
        assert (await asked(served, path, b"= x")).startswith(b"HTTP/1.1 400 ")
        assert (await asked(served, path, b"#" * 1_100_000)).startswith(b"HTTP/1.1 413 ")
        assert (await asked(served, path, b"")).startswith(b"HTTP/1.1 200 ")

    serve(tmp_path, play)


def test_the_thread_that_reads_a_config_rests_most_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the loop waits for the interpreter's lock at each call of the system: a canary's p99 was 50 ms."""
    ticks, rested = count(), list[float]()
    monkeypatch.setattr(asked_configs, "perf_counter", lambda: next(ticks) * asked_configs.WORK_S / 10)
    monkeypatch.setattr(asked_configs, "sleep", rested.append)
    text = "".join(f'[[policy]]\nname = "p{number}"\nrule = []\n' for number in range(100))
    assert len(asked_configs._policies(bytearray(text.encode()), "utf-8")) == 100
    assert sum(rested) > 4 * next(ticks) * asked_configs.WORK_S / 10
    assert sys.getprofile() is None


def test_a_body_that_says_that_it_is_too_large_is_refused_before_it_comes(tmp_path: Path) -> None:
    async def play(served: Admin) -> None:
        for path in PATHS:
            answer = await asked(served, path, b"", more="Content-Length: 1100000\r\n")
            assert answer.startswith(b"HTTP/1.1 413 ")

    serve(tmp_path, play)


@pytest.mark.parametrize("path", PATHS)
def test_a_config_takes_a_seat_when_all_of_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    taken: list[int] = []

    async def play(served: Admin) -> None:
        async def arriving(*_: object) -> bytearray:
            taken.append(served._asked._seats.taken)
            return bytearray()

        monkeypatch.setattr(asked_configs, "read_body", arriving)
        assert (await asked(served, path, b"")).startswith(b"HTTP/1.1 200 ")
        assert taken == [0]

    serve(tmp_path, play)


@pytest.mark.parametrize("path", PATHS)
def test_the_files_that_it_names_stay_closed(tmp_path: Path, path: str) -> None:
    """An error of a password file would tell its lines."""
    secret = tmp_path / "secret"
    secret.write_text("not a password file")
    body = f'[auth]\npassword_file = "{secret}"\n'
    with pytest.raises(BadConfig, match="secret:1: is not"):
        parse_settings(body)

    async def play(served: Admin) -> None:
        assert (await asked(served, path, body.encode())).startswith(b"HTTP/1.1 200 ")

    serve(tmp_path, play)


@pytest.fixture
def rests(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often the loop goes on meanwhile."""
    rests, sleep = [0], asyncio.sleep

    async def counted(seconds: float) -> None:
        rests[0] += 1
        await sleep(seconds)

    monkeypatch.setattr(asyncio, "sleep", counted)
    return rests


def test_many_policies_rest_more_often(rests: list[int]) -> None:
    hour = Hour(Pool("", 1 << 30, 0))
    for number in range(100):
        hour.add(Name(f"c{number}", "t", ""), 1000.0, Sample(lag_records=1, lag_age=1.0), Terms(("t",)))
    text = "".join(f"[[policy]]\nname = \"p{number}\"\ntopics = [\"a\"]\n" for number in range(1000))
    policies = parse_settings(text, reads_files=False).policies
    asyncio.run(module.replay(hour, Known(), policies))
    assert rests[0] >= 100


def test_a_replay_of_large_policies_rests_more_often(rests: list[int]) -> None:
    hour = Hour(Pool("", 1 << 30, 0))
    for moment in range(100):
        hour.add(Name("c", "t", ""), 1000.0 + 5 * moment, Sample(lag_records=1, lag_age=1.0), Terms(("t",)))
    leaves = ", ".join(["{lag_records = 9}"] * 64)
    rule = f'[[policy.rule]]\nwhen = {{any = [{leaves}]}}\nthen = "disconnect"\n'
    policies = parse_settings('[[policy]]\nname = "p"\ntopics = ["#"]\n' + rule * 8).policies
    asyncio.run(module.replay(hour, Known(), policies))
    assert rests[0] >= 100
