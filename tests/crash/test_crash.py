"""A broker that is killed again and again loses nothing that it confirmed.

Many more kills: ``python -m tests.crash --kills 50``.
"""

from __future__ import annotations

from pathlib import Path

from tests.crash.story import Story


def test_killed_again_and_again(tmp_path: Path) -> None:
    told = Story(tmp_path, seed=1, kills=6).tell()
    assert not told.wrong, f"{told.summary}\n" + "\n".join(told.wrong)


def test_a_rolling_restart_loses_nothing_either(tmp_path: Path) -> None:
    """Asked to stop under load, it confirms no more than is on disk by its end."""
    told = Story(tmp_path, seed=2, kills=3, orderly=True).tell()
    assert not told.wrong, f"{told.summary}\n" + "\n".join(told.wrong)
