"""Who runs what when several run at once: ``make test`` and ``make test-spark`` have four workers each
(``pytest -n 4 --dist loadfile``), as each waits for others now and then.

Rules:
- All tests that share the Spark session go to one worker, so that there is one JVM for all of them. So do those that
  share a cluster: its JVMs are there once, and not two sets of them at a time. Other files go whole to whoever is free,
  and each has the brokers of its module.
- What takes longest begins first, so that the workers come to the end at about the same time. Who starts a JVM of its
  own begins when the session's worker has made the archive of classes (pipeline/classes.py).
- Files whose tests mostly wait for brokers come between those that keep a core busy. When all workers had the former at
  once, nobody worked half of the time.
"""

from __future__ import annotations

import gc
import importlib
import signal
import sys
from collections.abc import Generator, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from tests.core.stage import UNCHECKED

from headway.core.broker import Broker
from headway.core.consumer.session import Session

settings.register_profile("headway", deadline=None)  # how long an example takes says more of the machine than of it
settings.load_profile("headway")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell gives that to what it starts in the background, and programs that a test starts would have it, too: Ctrl-C
    # would not end them.
    signal.signal(signal.SIGINT, signal.default_int_handler)

TESTS = Path(__file__).parent
SESSION, CLUSTER = "the Spark session", "the cluster"
SHARED = {"spark: SparkSession": SESSION, "cluster: Cluster": CLUSTER}
"""By what a test that shares it asks for."""
LONGEST_FIRST = (SESSION, "interop", "crash", "fuzz", CLUSTER, "pipeline/test_health.py", "pipeline", "bench", "sim")
WAITING = ("interop", "crash")
WAITED_UNTIL = 0.8
"""Of the other files, by which the last of these begin: what takes long is not left for the end."""


@pytest.fixture(autouse=True)
def _no_bug_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker closes the connection of a client for which records could not be written, and goes on. A test fails."""

    def fail(broker: Broker, session: Session, error: Exception) -> None:
        raise error

    monkeypatch.setattr(Broker, "_delivery_failed", fail)


@pytest.fixture(scope="module")
def few_objects() -> None:
    """Sets aside what other tests have left, for a module that asks for full collections again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _the_end_of_each_story_is_checked() -> Iterator[None]:
    UNCHECKED.clear()
    yield
    for stage in list(UNCHECKED):
        stage.check()


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Keeps the garbage collector from what the imports of all tests make: a million objects that stay. Some tests ask
    for a full collection, which took a second each."""
    gc.disable()
    try:
        _import_share(session.config)
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _import_share(config: pytest.Config) -> None:
    """Imports a worker's share of the test files, before every worker collects all of them in the same order. pytest
    compiles a test file when it is imported first, which takes longer than all else in a collection. In a fresh clone
    each worker would compile each file, as all come to it at the same time."""
    worker = getattr(config, "workerinput", None)
    if worker is None or config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    ignored = {config.rootpath / path for path in config.getoption("ignore") or ()}
    files = [path for path in sorted(TESTS.rglob("test_*.py")) if ignored.isdisjoint(path.parents)]
    for path in files[int(worker["workerid"].removeprefix("gw")) :: worker["workercount"]]:
        sys.path.insert(0, str(path.parent))  # as pytest does
        with suppress(Exception, pytest.skip.Exception):  # pytest imports it again, and reports what is wrong
            importlib.import_module(path.stem)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    files = sorted(dict.fromkeys(item.path for item in items), key=_rank)
    places = dict[Path, float]()
    for waits, share in ((True, WAITED_UNTIL), (False, 1.0)):
        kind = [path for path in files if (path.relative_to(TESTS).parts[0] in WAITING) is waits]
        places |= {path: share * place / len(kind) for place, path in enumerate(kind)}
    items.sort(key=lambda item: (places[item.path], item.path))


def _rank(path: Path) -> int:
    file = path.relative_to(TESTS)
    kinds = (_shared(path), str(file), file.parts[0])
    return next((LONGEST_FIRST.index(kind) for kind in kinds if kind in LONGEST_FIRST), len(LONGEST_FIRST))


@cache
def _shared(path: Path) -> str | None:
    """What it shares; others in tests/pipeline need none, or start Spark in processes of their own."""
    text = path.read_text() if path.is_relative_to(TESTS / "pipeline") else ""
    return next((name for asked, name in SHARED.items() if asked in text), None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadFileScheduling

    class Shared(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return _shared(config.rootpath / file) or file

    if config.getoption("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False
    return Shared(config, log)
