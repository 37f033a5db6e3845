"""Signals at any moment of a start: none of them kills a broker that is not to stop."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.interop import process
from tests.interop.forked import Forked
from tests.interop.process import BrokerProcess
from tests.interop.records import recording
from tests.interop.waiting import until

from headway.cli import main
from headway.server.journal import recovery as opening
from headway.server.listener import Listener

HARMLESS = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def _signalled(real: Callable[..., Any], numbers: tuple[signal.Signals, ...]) -> Callable[..., Any]:
    def first_signal(*arguments: Any, **more: Any) -> Any:
        for number in numbers:
            os.kill(os.getpid(), number)
        return real(*arguments, **more)

    return first_signal


def _serve(recovery: tuple[signal.Signals, ...] = (), opened: tuple[signal.Signals, ...] = ()) -> None:
    opening.restore = _signalled(opening.restore, recovery)
    Listener.open = _signalled(Listener.open, opened)  # type: ignore[method-assign]
    main()


def serve_signalled_in_recovery() -> None:
    _serve(recovery=HARMLESS)


def serve_signalled_with_open_ports() -> None:
    _serve(opened=HARMLESS)


def serve_stopped_in_recovery() -> None:
    _serve(recovery=(signal.SIGTERM,))


def serve_interrupted_in_recovery() -> None:
    _serve(recovery=(signal.SIGINT,))


def serve_stopped_with_open_ports() -> None:
    _serve(opened=(signal.SIGTERM,))


@pytest.mark.parametrize("begin", [serve_signalled_in_recovery, serve_signalled_with_open_ports])
def test_signal_during_a_start_kills_nobody_and_reloads_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begin: Callable[[], None]
) -> None:
    monkeypatch.setattr(process, "main", begin)
    broker = BrokerProcess(tmp_path, recording(tmp_path / "journal"))
    try:
        until(lambda: "reload" in broker.log.read_text())
        for number in HARMLESS:
            broker.signal(number)
        assert broker.get("/v1/broker")
        broker.stop()
    finally:
        broker.kill()


@pytest.mark.parametrize(
    "begin", [serve_stopped_in_recovery, serve_interrupted_in_recovery, serve_stopped_with_open_ports]
)
def test_start_that_is_stopped_ends_well(tmp_path: Path, begin: Callable[[], None]) -> None:
    config = tmp_path / "headway.toml"
    config.write_text('[server]\nadmin = "http://127.0.0.1:0"\n' + recording(tmp_path / "journal"))
    ready, log = tmp_path / "ready.json", tmp_path / "log"
    broker = Forked(begin, ["serve", "--config", str(config), "--ready-file", str(ready)], log)
    try:
        assert broker.wait(60) == 0, log.read_text()
    finally:
        broker.kill()
    assert not ready.exists()
    assert "Traceback" not in log.read_text()
