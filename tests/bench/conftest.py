"""Two ends of a connection, for those who measure one without a broker; and processes that are copies."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from tests.bench.copied import Copied
from tests.interop.forked import COPIES


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.settimeout(5)
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers and the bench's processes begin as copies."""
    monkeypatch.setattr("bench.peers.peer.RunningProcess", Copied)
    monkeypatch.setattr("bench.driver.worker.PROCESSES", COPIES)
