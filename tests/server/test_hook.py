"""The hook: what a service is asked, what becomes of its answers, and what when it is away."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from typing import Any

import pytest
from tests.interop.waiting import holds
from tests.login_service import Asked, login_service

from headway.core.base.errors import ConfigError
from headway.core.permission import Identity
from headway.server.config.auth.tables import HookTable
from headway.server.config.reading import parse_settings
from headway.server.logins import Attempt, Refusal
from headway.server.logins.hook import AWAY, DENIED, REMEMBERED_MAX, Hook

ANN = Attempt("ann", b"secret", "10.0.0.7", "c1", "mqtt")


def table(url: str, **more: Any) -> HookTable:
    return HookTable.model_validate({"url": url, **more})


async def ask(hook: Hook, attempt: Attempt = ANN) -> Identity | Refusal | None:
    try:
        return await hook.ask(attempt, lambda: True)
    finally:
        hook.close()


@pytest.mark.parametrize(
    ("status", "said", "expected"),
    [
        (200, '{"result": "allow"}', Identity("ann", elsewhere=True)),
        (200, '{"result": "allow", "is_superuser": false, "groups": ["desks"]}', Identity("ann", ("desks",), True)),
        (200, '{"result": "deny"}', DENIED), (200, '{"result": "ignore"}', None),
        (204, "", Identity("ann", elsewhere=True)),
        (200, "allow", Identity("ann", elsewhere=True)),
        (200, "allow administrator desks\n", Identity("ann", ("administrator", "desks"), True)),
        (200, "deny", DENIED), (200, "ignore", None),
        (200, "", AWAY), (200, "perhaps", AWAY), (200, "{", AWAY), (200, '{"result": 1}', AWAY), (200, "{}", AWAY),
        (500, "allow", AWAY), (404, "allow", AWAY), (302, "http://127.0.0.1:1/", AWAY), (200, "allow" * 20_000, AWAY),
        (200, '{"result": "allow", "more": ' + "[" * 30_000 + "]" * 30_000 + "}", AWAY),
    ],
)  # fmt: skip
def test_answers(status: int, said: str, expected: object) -> None:
    async def play() -> None:
        with login_service(lambda _: (status, said)) as service:
            hook = Hook(table(service.url), asyncio.get_running_loop())
            assert await ask(hook) == expected
            assert sum(hook.answers.values()) == 1
            assert hook.answers["away"] == (expected is AWAY)

    asyncio.run(play())


@pytest.mark.parametrize("form", ["json", "urlencoded"])
def test_the_service_is_told_who_comes_from_where(form: str) -> None:
    async def play() -> None:
        with login_service(lambda _: (200, "allow")) as service:
            await ask(Hook(table(service.url, form=form, token="of the broker"), asyncio.get_running_loop()))
            (asked,) = service.asked
            assert asked.path == "/login"
            assert asked.headers["Authorization"] == "Bearer of the broker"
            names = ("clientid", "peerhost") if form == "json" else ("client_id", "ip")
            assert asked.fields["username"] == "ann"
            assert asked.fields["password"] == "secret"
            assert [asked.fields[name] for name in names] == ["c1", "10.0.0.7"]
            assert asked.fields["listener"] == "mqtt"

    asyncio.run(play())


@pytest.mark.parametrize("when_away", ["deny", "allow"])
def test_a_service_that_cannot_be_reached_is_away(when_away: str, caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/?key=secret"

    async def play() -> None:
        hook = Hook(table(url, when_away=when_away), asyncio.get_running_loop())
        for _ in range(3):
            found = await hook.ask(ANN, lambda: True)
            assert found == (AWAY if when_away == "deny" else Identity("ann", elsewhere=True))
        assert hook.remembers(ANN) is None  # nobody has allowed it
        hook.close()

    asyncio.run(play())
    (line,) = caplog.messages  # once
    assert "cannot be reached" in line
    assert ("refused" if when_away == "deny" else "allowed") in line
    assert "secret" not in line


def test_one_that_does_not_answer_in_time_is_away_and_requests_have_a_limit() -> None:
    async def play() -> None:
        with login_service(lambda _: (200, "allow")) as service:
            service.held.clear()
            hook = Hook(table(service.url, timeout="200ms", in_flight_max=2), asyncio.get_running_loop())
            many = [ANN._replace(client=f"c{number}") for number in range(20)]
            found = await asyncio.gather(*(hook.ask(one, lambda: True) for one in many))
            assert set(found) == {AWAY}
            assert hook._in_flight <= 4
            service.held.set()
            await holds(lambda: not hook._in_flight)
            assert len(service.asked) <= 4
            assert await ask(hook) == Identity("ann", elsewhere=True)

    asyncio.run(play())


def test_one_who_is_not_to_be_checked_any_more_is_not_asked_about() -> None:
    async def play() -> None:
        with login_service(lambda _: (200, "allow")) as service:
            hook = Hook(table(service.url), asyncio.get_running_loop())
            assert await hook.ask(ANN, lambda: False) is None
            assert (service.asked, dict(hook.answers)) == ([], {})
            hook.close()

    asyncio.run(play())


def test_a_service_that_does_not_answer_holds_up_no_process_that_ends() -> None:
    script = (
        "import asyncio, socket\n"
        "from tests.server.test_hook import *\n"
        "async def play(silent):\n"
        "    url = f'http://127.0.0.1:{silent.getsockname()[1]}/'\n"
        "    hook = Hook(table(url, timeout='60s'), asyncio.get_running_loop())\n"
        "    asking = asyncio.ensure_future(hook.ask(ANN, lambda: True))\n"
        "    connection = await asyncio.get_running_loop().run_in_executor(None, silent.accept)\n"
        "    hook.close()\n"
        "    asking.cancel()\n"
        "    return connection\n"
        "silent = socket.create_server(('127.0.0.1', 0))\n"
        "connection = asyncio.run(play(silent))\n"
    )
    command = [sys.executable, "-c", script]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_who_was_allowed_is_remembered_for_a_while_and_nobody_else() -> None:
    now = [1000.0]

    class Loop(asyncio.SelectorEventLoop):
        def time(self) -> float:
            return now[0]

    async def play() -> None:
        def answer(asked: Asked) -> tuple[int, str]:
            return 200, "allow desks" if asked.fields["password"] == "secret" else "deny"

        with login_service(answer) as service:
            hook = Hook(table(service.url, cache="30s"), asyncio.get_running_loop())
            await hook.ask(ANN, lambda: True)
            await hook.ask(ANN._replace(name="eve", password=b"guess"), lambda: True)
            assert hook.remembers(ANN) == Identity("ann", ("desks",), elsewhere=True)
            for other in (
                ANN._replace(password=b"guess"), ANN._replace(name="eve"), ANN._replace(client="c2"),
                ANN._replace(address="10.0.0.8"), ANN._replace(listener="other"),
                ANN._replace(name="eve", password=b"guess"), ANN._replace(name="an", password=b"nsecret"),
            ):  # fmt: skip
                assert hook.remembers(other) is None
            now[0] += 30.0
            assert hook.remembers(ANN) is None
            for number in range(REMEMBERED_MAX + 10):
                hook._remember(ANN._replace(client=str(number)), Identity("ann"))
            assert len(hook._allowed) == REMEMBERED_MAX
            hook.close()
            without = Hook(table(service.url, cache="0s"), asyncio.get_running_loop())
            await without.ask(ANN, lambda: True)
            assert without.remembers(ANN) is None
            without.close()

    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(play())


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ('url = "ftp://x"', r'auth\.hook\.url: "ftp://x" is not a URL such as'),
        ('url = "http://"', "is not a URL such as"), ('url = "http://a:b@c/"', "is not a URL such as"),
        ('url = "http://x"\nwhen_away = "maybe"', r"auth\.hook\.when_away: .* is none of deny, allow"),
        ('url = "http://x"\ntime_out = "1s"', r"auth\.hook\.time_out: unknown key \(did you mean timeout\?\)"),
        ('form = "json"', r"auth\.hook\.url: is missing"),
    ],
)  # fmt: skip
def test_mistakes(written: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_settings(f"[auth.hook]\n{written}\n")


def test_with_a_hook_a_name_is_no_label_any_more() -> None:
    settings = parse_settings('[auth.hook]\nurl = "http://127.0.0.1/login"\n')
    assert not settings.listeners["mqtt"].allows_anonymous(settings.auth.checks_names)
    assert settings.auth.asks
