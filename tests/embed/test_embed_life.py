"""The life of an embedded broker: it starts and stops with its program, however that ends, and leaves nothing behind.
It changes nothing of the process that it is a part of."""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import signal
import socket
import sys
import threading
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import prometheus_client
import pytest
from tests.embed.program import main
from tests.embed.stage import LOOPS, MQTT, config, open_files, play, threads, turns
from tests.interop.forked import Forked
from tests.interop.waiting import PATIENCE_S, holds, until
from tests.span_collector import span_collector

from headway.embed import Broker, ConfigError, Ended, NotRunning, Record, Stopped

DURABLE = {"topic": [{"filter": "kept/#", "keep": "1h"}]}


def durable(folder: Path, **more: Any) -> dict[str, Any]:
    return config(folder, journal={"path": str(folder / "journal")}, **DURABLE) | more


async def kept(broker: Broker, wanted: int) -> list[bytes]:
    found = []
    async for one in broker.subscribe("kept/#", from_="earliest"):
        assert isinstance(one, Record)
        found.append(one.payload)
        if len(found) == wanted:
            break
    return found


def of_the_process() -> dict[str, object]:
    """What belongs to the process, and to no broker in it."""
    root = logging.getLogger()
    return {
        "signals": [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE)],
        "log": (list(root.handlers), root.level, logging.getLogger("headway").level),
        "limits": resource.getrlimit(resource.RLIMIT_NOFILE),
        "gc": (gc.get_threshold(), gc.isenabled()),
        "switch": sys.getswitchinterval(),
        "policy": type(asyncio.get_event_loop_policy()),
        "metrics": list(prometheus_client.REGISTRY._collector_to_names),
        "hooks": (sys.excepthook, threading.excepthook, sys.unraisablehook),
    }  # fmt: skip


@pytest.mark.parametrize("loop", LOOPS)
def test_nothing_of_the_process_is_changed_and_nothing_is_left(tmp_path: Path, loop: str) -> None:
    callbacks = len(gc.callbacks)

    async def story(number: int) -> None:
        before, set_aside = of_the_process(), gc.get_freeze_count()
        more = {"listeners": MQTT, "server": {"admin": "http://127.0.0.1:0"}}
        async with Broker(durable(tmp_path / f"{number}", **config(tmp_path / f"{number}", **more))) as broker:
            while_it_runs = of_the_process()
            await broker.publish("kept/1", b"x")
            waiting = asyncio.create_task(anext(broker.subscribe("none")))  # type: ignore[arg-type]
            await turns()
        with pytest.raises(Ended):
            await waiting
        assert while_it_runs == before == of_the_process()
        assert gc.get_freeze_count() <= set_aside
        assert asyncio.all_tasks() == {asyncio.current_task()}

    play(story(0), loop)  # what is imported when it is needed
    until(lambda: not threads(), what="the threads end")
    files = open_files()
    play(story(1), loop)
    until(lambda: not threads(), what="the threads end")
    assert not open_files() - files
    assert len(gc.callbacks) == callbacks


def test_without_a_config_no_port_is_open(tmp_path: Path) -> None:
    async def story() -> None:
        made: list[socket.socket] = []
        listening = socket.socket.listen
        try:
            socket.socket.listen = lambda sock, *n: (made.append(sock), listening(sock, *n))[1]  # type: ignore[method-assign]
            for none in (None, "", {}, "[pool]\nmemory = '64MB'\n"):
                async with Broker(none) as broker:
                    assert broker.urls == {}
                    await broker.publish("a", b"")
            assert made == []
            async with Broker(config(tmp_path, listeners=MQTT)) as broker:
                assert list(broker.urls) == ["mqtt"]
            assert len(made) == 1
        finally:
            socket.socket.listen = listening  # type: ignore[method-assign]

    play(story())


def test_configs_of_every_kind(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text('[server]\nname = "filed"\n')
    assert Broker(file).settings.server.name == Broker(str(file)).settings.server.name == "filed"
    assert Broker('[server]\nname = "text"').settings.server.name == "text"
    of_pages = Broker({"listeners": {"asgi": {"connections_max": 7, "origins": ["https://a.example"]}}}).settings
    assert of_pages.listeners["asgi"].connections_max == 7
    wrong: list[tuple[Any, str]] = [
        ({"server": {"nam": "x"}}, "server.nam"), ({"pool": {"memory": None}}, "pool.memory"),
        ({"listeners": {"asgi": {"url": "ws://127.0.0.1:1"}}}, "listeners.asgi.url"), (tmp_path / "none", "none"),
        ('[[policy]]\nname = "p"\ntopics = ["#"]\nlisteners = ["nobody"]\n', "nobody"),
    ]  # fmt: skip
    for given, named in wrong:
        with pytest.raises(ConfigError, match=named):
            Broker(given)


def test_two_at_once_and_one_after_the_other(tmp_path: Path) -> None:
    async def story() -> None:
        one, two = durable(tmp_path / "1", listeners=MQTT), durable(tmp_path / "2", listeners=MQTT)
        async with Broker(one) as first, Broker(two) as second:
            assert first.urls != second.urls
            of_first, of_second = first.subscribe("t"), second.subscribe("t")
            await first.publish("t", b"1")
            await second.publish("t", b"2")
            assert [(await anext(one)).payload for one in (of_first, of_second)] == [b"1", b"2"]  # type: ignore[union-attr]
            with pytest.raises(ConfigError, match=r"journal|history"):
                await Broker(one).start()  # the folder is the first one's
            await first.publish("kept/1", b"3")
        with pytest.raises(NotRunning):
            await first.start()
        async with Broker(one) as again:
            assert await kept(again, 1) == [b"3"]

    play(story())


def test_in_two_threads_each_on_its_own_loop(tmp_path: Path) -> None:
    found: list[bytes] = []

    def thread(number: int) -> None:
        async def story() -> None:
            async with Broker(config(tmp_path / str(number))) as broker:
                records = broker.subscribe("t")
                for _ in range(200):
                    await broker.publish("t", b"%d" % number)
                found.extend([(await anext(records)).payload for _ in range(200)])  # type: ignore[union-attr]

        play(story())

    both = [threading.Thread(target=thread, args=(number,)) for number in (1, 2)]
    for one in both:
        one.start()
    for one in both:
        one.join(PATIENCE_S)
    assert sorted(found) == [b"1"] * 200 + [b"2"] * 200


def test_a_port_that_is_taken_leaves_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with Broker(config(tmp_path, listeners=MQTT)) as broker:
            files, running = open_files(), threads()
            second = config(tmp_path, listeners={"mqtt": {"url": broker.urls["mqtt"]}})
            with pytest.raises(ConfigError, match=r"listeners\.mqtt: cannot listen"):
                await Broker(second).start()
            assert (open_files() - files, threads()) == ({}, running)

    play(story())


def test_confirmed_is_on_disk_and_a_stop_tells_who_waits(tmp_path: Path) -> None:
    async def story() -> None:
        async with Broker(durable(tmp_path)) as broker:
            journal = broker.running.engine.journal
            assert journal is not None
            before = journal.commits
            await asyncio.gather(*(broker.publish("kept/1", b"%d" % number) for number in range(100)))
            assert journal.committed_sequence >= 100
            assert journal.commits - before < 100  # they share one sync
            unheard = asyncio.create_task(broker.publish("kept/1", b"late", confirm=False))
            await unheard
        async with Broker(durable(tmp_path)) as broker:
            assert await kept(broker, 101) == [b"%d" % number for number in range(100)] + [b"late"]
            late = broker.subscribe("none")
        with pytest.raises(Ended):
            await anext(late)
        for call in (lambda: broker.publish("a", b""), lambda: anext(broker.subscribe("a"))):
            with pytest.raises((NotRunning, Stopped)):
                await call()

    play(story())


# -- ends of programs -------------------------------------------------------------------------------------------------

ENDS = {
    "ends": (0, ""), "raises": (1, "ValueError: of the program"), "exits": (3, ""), "forgets": (0, ""),
    "interrupted": (1, "KeyboardInterrupt"), "cancelled": (1, "CancelledError"), "killed": (-9, ""),
}  # fmt: skip
"""Exit code, and the last line on stderr."""


def test_it_stops_with_its_program_however_that_ends(tmp_path: Path) -> None:
    logs = {end: tmp_path / f"{end}.log" for end in ENDS}
    programs = {end: Forked(main, [str(tmp_path / end), end], logs[end]) for end in ENDS}
    for end, (code, told) in ENDS.items():
        assert programs[end].wait(PATIENCE_S) == code, (end, logs[end].read_text())
        # Where the machine is slow, the log says that the loop was late.
        said = [line for line in logs[end].read_text().splitlines() if line.strip() and "the loop was late" not in line]
        assert told in said[-1] if told else not said, (end, said)

    async def story(end: str) -> None:
        own = {"journal": {"path": str(tmp_path / end)}}
        async with Broker(config(tmp_path, **own, **DURABLE)) as broker:
            wanted = [end.encode()] + ([b"unconfirmed"] if end != "killed" else [])
            assert await kept(broker, len(wanted)) == wanted

    for end in ENDS:
        play(story(end))


@pytest.mark.parametrize("wrong", ["history", "telemetry", "pool"])
def test_a_start_that_fails_half_way_leaves_nothing_open(tmp_path: Path, wrong: str) -> None:
    """The journal was opened first, and stayed locked for as long as the program lived."""
    nowhere = "/proc/no/where"
    bad: dict[str, dict[str, Any]] = {
        "history": {"path": nowhere}, "telemetry": {"path": nowhere, "enabled": True}, "pool": {"disk_path": nowhere},
    }  # fmt: skip

    async def story() -> None:
        good = durable(tmp_path)
        async with Broker(good) as broker:
            await broker.publish("kept/1", b"x")
        await asyncio.to_thread(until, lambda: not threads(), what="the threads end")
        files = open_files()
        with pytest.raises(ConfigError):
            await Broker(good | {wrong: bad[wrong]}).start()
        await asyncio.to_thread(until, lambda: not threads(), what="the threads end")
        assert not open_files() - files
        async with Broker(good) as again:
            assert await kept(again, 1) == [b"x"]

    play(story())


@pytest.mark.parametrize("steps", range(1, 6))
def test_a_stop_waits_for_a_start_that_is_under_way(tmp_path: Path, steps: int) -> None:
    async def story() -> None:
        broker = Broker(durable(tmp_path, server={"admin": "http://127.0.0.1:0"}))
        starting = asyncio.create_task(broker.start())
        await turns(steps)
        await broker.stop()
        await starting
        with pytest.raises(NotRunning):
            await broker.publish("kept/1", b"x")
        await asyncio.to_thread(until, lambda: not threads(), what="the threads end")

    play(story())


@pytest.mark.parametrize("steps", range(5))
def test_a_stop_that_is_cancelled_leaves_no_thread(tmp_path: Path, steps: int) -> None:
    async def story() -> None:
        broker = Broker(durable(tmp_path, server={"admin": "http://127.0.0.1:0"}))
        await broker.start()
        name = f"{broker.urls['admin']}/v1/writers/w/parts"
        request = urllib.request.Request(name, b"x", method="POST")
        with suppress(urllib.error.HTTPError):
            await asyncio.to_thread(urllib.request.urlopen, request)  # its threads begin with the first part
        stopping = asyncio.create_task(broker.stop())
        await turns(steps)
        stopping.cancel()
        with suppress(asyncio.CancelledError):
            await stopping
        await broker.stop()
        await asyncio.to_thread(until, lambda: not threads(), what="the threads end")

    play(story())


@pytest.mark.parametrize("loop", LOOPS)
def test_a_stop_leaves_the_loop_to_the_program_while_a_collector_is_slow(tmp_path: Path, loop: str) -> None:
    """The collector answers only when the program says so, which it does on the loop that the broker stops on."""

    async def story() -> None:
        with span_collector() as collector:
            collector.held.clear()
            broker = Broker(config(tmp_path, traces={"endpoint": collector.url}))
            await broker.start()
            trace = {"traceparent": f"00-{7:032x}-{9:016x}-01"}
            await broker.publish("t", "x", user=trace)
            await holds(lambda: collector.requests)
            await broker.publish("t", "y", user=trace)
            traces = broker.running.engine.traces
            assert traces is not None
            stopping = asyncio.create_task(broker.stop())
            await holds(lambda: traces.stopping)
            collector.held.set()
            await stopping
            assert len(collector.spans) == 2
            assert not any(traces.dropped.values())

    play(story(), loop)
