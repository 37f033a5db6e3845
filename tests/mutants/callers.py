"""Which tests call which functions of the core: who does not call one cannot notice a fault in it.

A pytest plugin finds it out. It writes JSON to the file that ``HEADWAY_CALLERS`` names: for every test how long it
took, and the functions, each as file, first and last line. What ran before the first test, while the core was imported,
is in the name of ``IMPORT``.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

CORE = f"{os.sep}headway{os.sep}core{os.sep}"
IMPORT = "import"
_called: set[CodeType] = set()
_tests: dict[str, tuple[float, list[tuple[str, int, int]]]] = {}


def _call(frame: FrameType, event: str, arg: Any) -> None:
    _called.add(frame.f_code)


def pytest_configure() -> None:
    sys.settrace(_call)


def pytest_collection_finish() -> None:
    _keep(IMPORT)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    sys.settrace(_call)
    yield
    _keep(item.nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    seconds, functions = _tests.get(report.nodeid, (0.0, []))
    _tests[report.nodeid] = seconds + report.duration, functions


def pytest_sessionfinish() -> None:
    Path(os.environ["HEADWAY_CALLERS"]).write_text(json.dumps(_tests))


def _keep(name: str) -> None:
    sys.settrace(None)
    # A module and a class are code that is called, too: once, at import.
    functions = [_place(code) for code in _called if CORE in code.co_filename and code.co_flags & 2]
    _tests[name] = _tests.get(name, (0.0, []))[0], functions
    _called.clear()


def _place(code: CodeType) -> tuple[str, int, int]:
    return Path(code.co_filename).name, code.co_firstlineno, max(line for *_, line in code.co_lines() if line)
