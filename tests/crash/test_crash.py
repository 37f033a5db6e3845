"""A broker that is killed again and again loses nothing that it confirmed.

Many more kills: ``python -m tests.crash --kills 50``.
"""

from __future__ import annotations

from pathlib import Path

from tests.crash.story import Story


def test_killed_again_and_again(tmp_path: Path) -> None:
    told = Story(tmp_path, seed=1, kills=6).tell()
    assert not told.wrong, f"{told.summary}\n" + "\n".join(told.wrong)
