"""What the writer's thread reports of a commit that goes wrong."""

from __future__ import annotations

from typing import Any

import pytest

from headway.core.log.durable import MAIN
from headway.server.journal.writing import CommitStep, commit_steps


class Failing:
    """A journal in which each commit has its own fault."""

    def __init__(self, *faults: Exception | None) -> None:
        self._faults = list(faults)
        self.commits = 0

    def commit(self, *_: object, **__: object) -> None:
        self.commits += 1
        fault = self._faults.pop(0)
        if fault is not None:
            raise fault


BUG, DISK, LATER = ValueError("an entry that cannot be written"), OSError(5, "disk"), OSError(28, "full")


@pytest.mark.parametrize(
    ("faults", "told"), [
        ((None, None), None),
        ((DISK, None), DISK),
        ((DISK, LATER), DISK),
        ((BUG, DISK), BUG),
        ((DISK, BUG), BUG),
    ],
)  # fmt: skip
def test_a_bug_is_told_whatever_the_disk_does(faults: tuple[Exception | None, ...], told: Exception | None) -> None:
    """What a bug kept from being written is in no memory, so mending the disk must not confirm it."""
    store: Any = Failing(*faults)
    result = commit_steps(store, [CommitStep({"t": []}, []), CommitStep({MAIN: []}, [])], 0, sync=True)
    assert result.error is told
    assert store.commits == 2
