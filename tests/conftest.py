"""Who runs what when several run at once: ``make test`` has three workers (``pytest -n 3 --dist loadfile``), as each
waits for others now and then.

Rules:
- All tests that share the Spark session go to one worker, so that there is one JVM for all of them. Other files go
  whole to whoever is free, and each has the brokers of its module.
- What takes longest begins first, so that the workers come to the end at about the same time. Who starts a JVM of its
  own begins when the session's worker has made the archive of classes (pipeline/classes.py).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("headway", deadline=None)  # how long an example takes says more of the machine than of it
settings.load_profile("headway")

TESTS = Path(__file__).parent
SHARED = "the Spark session"
LONGEST_FIRST = (SHARED, "interop", "pipeline", "bench", "crash", "fuzz", "sim")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _rank(item.path))


def _rank(path: Path) -> int:
    kind = SHARED if _shares_session(path) else path.relative_to(TESTS).parts[0]
    return LONGEST_FIRST.index(kind) if kind in LONGEST_FIRST else len(LONGEST_FIRST)


@cache
def _shares_session(path: Path) -> bool:
    """Others in tests/pipeline need none, or start Spark in processes of their own."""
    return path.is_relative_to(TESTS / "pipeline") and "spark: SparkSession" in path.read_text()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadFileScheduling

    class BySession(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return SHARED if _shares_session(config.rootpath / file) else file

    if config.getoption("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False
    return BySession(config, log)
