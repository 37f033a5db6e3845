"""Helpers of the tests of the thin index."""

from __future__ import annotations

import pytest

from headway.store.journal.segments import segment as index


@pytest.fixture(params=[1, 250, 500, 1200, 100_000])
def thin_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    distance: int = request.param
    monkeypatch.setattr(index, "THIN_BYTES", distance)
    return distance
