from __future__ import annotations

import pytest

from headway.core.delivery import fanout
from headway.core.delivery import fanout as offer
from headway.core.delivery import rendering as batch
from headway.core.governance import memory as pressure
from headway.core.log.lanes import cursor, lane
from headway.core.queue import dispatch
from headway.core.queue.picking import groups, picker, picking
from headway.core.queue.picking import groups as reserved
from headway.core.routing import registry as overdue


@pytest.fixture(autouse=True)
def real_sizes_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each world sets sizes of its own (``World._sizes``); the tests that run after it get the real ones back."""
    for module, name in (
        (lane, "CHUNK_BYTES"), (cursor, "SETTLED_BYTES"), (batch, "BATCH_BYTES"), (fanout, "PUMP_BYTES"),
        (offer, "VIEWS_MAX"), (pressure, "MORE_BYTES"),
        (dispatch, "BATCH_BYTES"), (dispatch, "PUMP_BYTES"), (dispatch, "PORTION_RECORDS"),
        (overdue, "OVERDUE_WORK"), (dispatch, "ROUND_MEMBERS"), (picking, "RESERVED_FOR"), (picker, "FOUND_ENOUGH"),
         (picker, "PASSED_AT_ONCE"), (groups, "RESERVED_MAX"),
        (reserved, "RESERVED_EACH"), (groups, "GROUPS_MAX"), (groups, "BUCKETS"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, getattr(module, name))
