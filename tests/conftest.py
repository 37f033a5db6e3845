"""Who runs what when several run at once: ``make test`` has two workers (``pytest -n 2 --dist loadfile``).

Rules:
- All tests that share the Spark session go to one worker, so that there is one JVM for all of them. Other files go
  whole to whoever is free, and each has the brokers of its module.
- What takes longest begins first, so that the workers come to the end at about the same time.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

APART = {"test_exactly_once.py", "test_health.py", "test_lab_cli.py", "test_notebook.py", "test_views_cli.py"}
"""In tests/pipeline, but not with the others' session: they need none, or start Spark in processes of their own."""
LONGEST_FIRST = ("pipeline", "interop", "bench", "crash", "fuzz", "sim")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _rank(item.path))


def _rank(path: Path) -> int:
    kind = path.relative_to(Path(__file__).parent).parts[0]
    return LONGEST_FIRST.index(kind) if kind in LONGEST_FIRST else len(LONGEST_FIRST)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadFileScheduling

    class BySession(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            shares = file.startswith("tests/pipeline/") and Path(file).name not in APART
            return "tests/pipeline" if shares else file

    if config.getoption("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False
    return BySession(config, log)
