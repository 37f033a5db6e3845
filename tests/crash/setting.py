"""Settings: how much room the broker of one life has, what becomes of its disks meanwhile, and who stays away."""

from __future__ import annotations

from pathlib import Path
from random import Random

from tests.crash.disks import JOURNAL, SHARED, SPILL, journal_bytes

FSYNC = ("always", "5ms", "off")
MEMORY = ("1MB", "1MB", "2MB", "4MB", "64MB")
"""So little that what waits has to leave it, and so much that it has not."""
DISK = ("1GB", "1MB", "100KB")
TROUBLES = ("", SPILL, SPILL, JOURNAL, SHARED)
SHARED_BYTES = (500_000, 3_000_000)
"""So much more than the journal has at the beginning."""
FOR_GOOD = 0.5
"""How many of the troubles last until the kill; the others are over at some time."""
AWAY = 0.3
AWAY_TURNS = (100, 2000)


class Setting:
    """Of one life. A trouble is a file that says it to the broker's disks; at first there is none."""

    def __init__(self, rng: Random, folder: Path, fsync: str) -> None:
        self.fsync, self.memory, self.disk = fsync, rng.choice(MEMORY), rng.choice(DISK)
        self.trouble = rng.choice(TROUBLES)
        self.narrow = self.memory != "64MB"
        """Who does not take what it is sent may be cut off for the others' sake."""
        self._folder = folder
        self._bytes = rng.randint(*SHARED_BYTES)
        self._begins = rng.random()
        self._ends = 2.0 if rng.random() < FOR_GOOD else rng.uniform(self._begins, 1.0)
        self._rng = rng
        self.relieve()

    def __str__(self) -> str:
        return f"fsync {self.fsync}, memory {self.memory}, disk {self.disk}{', ' * bool(self.trouble)}{self.trouble}"

    def turns_away(self) -> int:
        """For how long somebody is away at first."""
        return self._rng.randint(*AWAY_TURNS) if self.narrow and self._rng.random() < AWAY else 0

    @property
    def speechless(self) -> bool:
        """Nobody who comes is answered, for the journal's disk may be full."""
        return any((self._folder / name).exists() for name in (JOURNAL, SHARED))

    @property
    def rough(self) -> bool:
        """Who publishes may not be read for a while."""
        return self.narrow or bool(self.trouble)

    def at(self, part: float) -> None:
        """So much of the life is over."""
        if self.trouble and self._begins <= part < self._ends:
            self._begins = 2.0
            room = journal_bytes(self._folder) + self._bytes if self.trouble == SHARED else 0
            written = self._folder / "to-be-told"
            written.write_text(str(room))
            written.rename(self._folder / self.trouble)  # the broker sees it whole
        elif part >= self._ends:
            self.relieve()

    def relieve(self) -> None:
        """Somebody has made room on the disks."""
        self._ends = 2.0
        for name in (JOURNAL, SHARED, SPILL):
            (self._folder / name).unlink(missing_ok=True)
