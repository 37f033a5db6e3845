"""A broker that records, for a module of tests each, which names this one in ``pytest_plugins``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.interop.conftest import BrokerFactory
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw
from tests.interop.records import recording


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("journal")


@pytest.fixture(scope="module")
def keeping(start: BrokerFactory, folder: Path) -> BrokerProcess:
    return start(recording(folder))


@pytest.fixture
def publisher(keeping: BrokerProcess, name: str) -> Iterator[Raw]:
    """What it has published at least once is on disk when ``published`` returns."""
    with Raw(keeping.ports["mqtt"], f"{name}-publisher") as raw:
        yield raw
