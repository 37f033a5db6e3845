"""A seeded world around a journal: appends, syncs, faults, mends, frees, stops, ends of processes and power losses.

The checker knows only what was given and what returned without an error, and asks after each restart:
- everything that was confirmed is there, unless it was allowed to be freed;
- what is there was given, in this order, without a hole; numbers follow;
- nothing is called corrupt.
After a stop, damage to the ends of a stream is told, and repaired.
While the journal is open, readers see everything that was given, whether it is on disk or not.
"""

from __future__ import annotations

import errno
import random
from collections import Counter
from pathlib import Path

from tests.store.journal.fake_files import FakeFile, FakeFiles, PowerLoss

from headway.store.journal.journal import Journal
from headway.store.journal.manifest import ListedStream, read_manifest
from headway.store.journal.recovery import manifest_scan, verify
from headway.store.journal.segments.batch import Entry, StoredEntry
from headway.store.journal.segments.segment import Corrupt, file_name

FOLDER = Path("/journal")
NAMES = ("one", "two")
SEGMENT_BYTES = 30_000

Plain = tuple[int, int, int, bytes]
"""Kind, sequence, count, data."""


def plain(entry: Entry | StoredEntry) -> Plain:
    data = entry.data
    return entry.kind, entry.sequence, entry.count, b"".join(data) if isinstance(data, tuple) else bytes(data)


class Given:
    """What a stream was given since the beginning, and what must be there."""

    def __init__(self) -> None:
        self.entries: list[Plain] = []
        self.confirmed = 0
        """So many of them are on disk."""
        self.freeable = 0
        """So many of them may be gone."""
        self.sequence = 0

    def may_free(self, sequence: int) -> None:
        covering = (n for n, (_, first, count, _) in enumerate(self.entries) if count and first + count > sequence)
        self.freeable = max(self.freeable, next(covering, len(self.entries)))

    def check(self, found: list[Plain], said: str) -> None:
        """After a restart: what is left is on disk, and what was not confirmed and is gone, was never given."""
        starts = range(max(0, self.confirmed - len(found)), self.freeable + 1)
        first = next((n for n in starts if self.entries[n : n + len(found)] == found), None)
        assert first is not None, f"{said}: {len(found)} entries are no slice of the {len(self.entries)} given"
        self.freeable = first
        del self.entries[first + len(found) :]
        self.confirmed = len(self.entries)


class World:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.files = FakeFiles(self.rng)
        self.given = {name: Given() for name in NAMES}
        self.counts: Counter[str] = Counter()
        self.time_us = 1
        self.journal = Journal(self.files, FOLDER, SEGMENT_BYTES)
        self.restart()

    def run(self, steps: int) -> None:
        actions = (
            [self.commit] * 14 + [self.mend] * 2 + [self.free] * 3 + [self.read, self.fault, self.fault, self.heal]
        )
        actions += [self.stop]
        actions += [self.lose_power] if self.rng.random() < 0.5 else [self.end_process]
        for _ in range(steps):
            action = self.rng.choice(actions)
            try:
                action()
            except PowerLoss:
                self.counts["power losses within an operation"] += 1
                self.lose_power()
            self.journal.check()
        self.heal()
        self.mend()
        self.journal.check()
        self.lose_power()

    # -- what happens -----------------------------------------------------------------------------------------------

    def commit(self) -> None:
        work = {name: self.entries(name) for name in NAMES if self.rng.random() < 0.8}
        roll = [name for name in NAMES if self.rng.random() < 0.1]
        self.time_us += self.rng.randint(-5, 100)
        for name, entries in work.items():
            self.given[name].entries += map(plain, entries)
        sync = self.rng.random() < 0.7
        try:
            self.journal.commit(work, self.time_us, sync=sync, roll=roll)
        except OSError:
            self.counts["commits that failed"] += 1
            return
        if sync:
            self.confirm()

    def entries(self, name: str) -> list[Entry]:
        rng, given = self.rng, self.given[name]
        entries = []
        for _ in range(rng.choice((0, 1, 1, 2, 5, 30))):
            count = rng.choice((0, 1, 1, 1, 7))
            size = rng.choice((0, 3, 100, 100, 500, rng.randint(0, 9000)))
            if rng.random() < 0.003:
                size = 300_000
            given.sequence += rng.choice((1, 1, 1, 4))
            data = rng.randbytes(size)
            cut = rng.randint(0, size)
            entries.append(Entry(rng.randint(0, 3), given.sequence, count, (data[:cut], bytearray(data[cut:]))))
            given.sequence += max(0, count - 1)
        return entries

    def mend(self) -> None:
        try:
            self.journal.mend()
        except OSError:
            self.counts["mends that failed"] += 1
            return
        self.confirm()

    def confirm(self) -> None:
        assert self.journal.unsynced_bytes == 0
        assert self.journal.broken is None
        for given in self.given.values():
            given.confirmed = len(given.entries)

    def free(self) -> None:
        name = self.rng.choice(NAMES)
        stream, given = self.journal.stream(name), self.given[name]
        sequence = self.rng.randint(stream.first_sequence, stream.last_sequence + 1)
        given.may_free(sequence)
        try:
            if self.rng.random() < 0.5:
                freed = stream.free_before(sequence)
            else:
                freed = stream.free_for_size(self.rng.randint(0, 2 * stream.bytes), sequence)
        except OSError:
            self.counts["frees that failed"] += 1
            return
        self.counts["frees"] += freed > 0

    def fault(self) -> None:
        """Some operations fail from now on, or the power does."""
        rng = self.rng
        kind = rng.choice(("room", "some", "some", "all", "power"))
        self.counts[f"fault {kind}"] += 1
        if kind == "room":
            self.files.room = rng.randint(0, 20_000)
            return
        which = set(rng.sample(("create", "write", "sync", "remove", "truncate", "sync_folder"), rng.randint(1, 3)))
        left = rng.randint(1, 30)

        def hook(operation: str, path: Path) -> None:
            nonlocal left
            left -= 1
            if kind == "power" and left <= 0:
                raise PowerLoss
            if operation in which and kind != "power" and (kind == "all" or rng.random() < 0.5):
                raise OSError(rng.choice((errno.EIO, errno.ENOSPC, errno.EROFS)), f"{operation} fails")

        self.files.hook = hook

    def heal(self) -> None:
        self.files.hook = None
        self.files.room = None

    def lose_power(self) -> None:
        self.counts["power losses"] += 1
        self.files = self.files.crash(self.rng)
        self.restart()

    def end_process(self) -> None:
        self.counts["ends of a process"] += 1
        self.files.kill()
        self.restart()

    def stop(self) -> None:
        """Stop the journal, with what faults there are; then the power may fail."""
        self.journal.finish()
        listed = read_manifest(self.files, FOLDER) or {}
        if all(name in listed and listed[name].end for name in NAMES):
            self.counts["clean stops"] += 1
            for given in self.given.values():
                given.confirmed = len(given.entries)
            self.heal()
            self.damage(listed)
        self.counts["stops"] += 1
        self.files.kill()
        if self.rng.random() < 0.5:
            self.files = self.files.crash(self.rng)
        self.restart()

    def damage(self, listed: dict[str, ListedStream]) -> None:
        """Damage a copy of the journal. It is told, and gone after a repair."""
        rng, name = self.rng, self.rng.choice(NAMES)
        copy = FakeFiles()
        copy.folders = set(self.files.folders)
        for path, file in self.files.seen.items():
            copy.seen[path] = FakeFile()
            copy.seen[path].data = bytearray(file.data)
        found = {one.name: one.batches for one in verify(FOLDER / name, copy).segments}
        end = listed[name].end
        assert end is not None
        path = FOLDER / name / file_name(rng.choice((listed[name].first, listed[name].last)).ordinal)
        kind = rng.choice(("remove", "empty", "cut"))
        if kind == "cut":
            path = FOLDER / name / file_name(listed[name].last.ordinal)
            del copy.seen[path].data[rng.randrange(end.bytes) :]
        elif kind == "empty":
            copy.seen[path].data.clear()
        elif found[path.name]:
            copy.remove(path)
        else:
            return
        said = f"seed {self.seed}: {kind} {path}"
        assert not verify(FOLDER / name, copy).good, said
        journal = Journal(copy, FOLDER, SEGMENT_BYTES)
        try:
            journal.open(NAMES)
            raise AssertionError(f"{said} is not told")
        except Corrupt:
            self.counts["damage that was told"] += 1
        assert journal.open(NAMES, repair=True), said
        left = [sum(1 for _ in journal.stream(one).scan(None)) for one in NAMES]
        journal.close()
        assert journal.open(NAMES) == [], said
        assert [sum(1 for _ in journal.stream(one).scan(None)) for one in NAMES] == left, said
        assert all(verify(FOLDER / one, copy).good for one in NAMES), said

    def restart(self) -> None:
        """Open what there is, at times with faults, and check it."""
        for trial in (1, 2, 3):
            if trial < 3 and self.rng.random() < 0.2:
                self.fault()
            self.journal = Journal(self.files, FOLDER, SEGMENT_BYTES)
            try:
                for said in self.journal.open(NAMES):
                    self.counts["torn tails"] += "confirmed" in said
                break
            except OSError:
                self.counts["opens that failed"] += 1
                self.files.kill()
            except PowerLoss:
                self.files = self.files.crash(self.rng)
            except Corrupt as error:
                raise AssertionError(f"seed {self.seed}: {error}") from error
        self.heal()
        for name, given in self.given.items():
            stream = self.journal.stream(name)
            found = [plain(entry) for _, entries in stream.scan(None) for entry in entries]
            given.check(found, f"seed {self.seed}, {name}")
            assert manifest_scan(self.files, FOLDER, [FOLDER / one for one in NAMES])[1] == []
            report = verify(FOLDER / name, self.files)
            assert report.good, f"seed {self.seed}: {report.losses}"
            assert not report.notes, f"seed {self.seed}: {report.notes}"
            numbers = [decoded.header.number for decoded in stream._scan(None)]
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True
            self.look(name)

    # -- reading ----------------------------------------------------------------------------------------------------

    def read(self) -> None:
        """All that was given and not freed is read, in order, broken or not."""
        for name, given in self.given.items():
            stream = self.journal.stream(name)
            last = stream.last_sequence
            hook, room = self.files.hook, self.files.room
            self.heal()
            found = [plain(e) for _, entries in stream.read(1, last) for e in entries if e.count]
            self.files.hook, self.files.room = hook, room
            wanted = [entry for entry in given.entries if entry[2] and entry[1] + entry[2] > stream.first_sequence]
            assert found == wanted, f"seed {self.seed}: {name}"
            self.look(name)
            must = [entry for entry in given.entries[given.freeable :] if entry[2]]
            assert found[len(found) - len(must) :] == must, f"seed {self.seed}: {name}"
            self.counts["reads while broken"] += stream.broken is not None

    def look(self, name: str) -> None:
        """What is looked up is what is found when all is looked at, from end to end."""
        stream, rng = self.journal.stream(name), random.Random(self.seed)
        hook, room = self.files.hook, self.files.room
        self.heal()
        all_of_it = [decoded.header for decoded in stream._scan(None)]
        headers = [header for header in all_of_it if header.first_sequence]
        assert sum(segment.batches for segment in stream.segments) == len(all_of_it)
        for _ in range(20):
            sequence, time_us = rng.randint(0, stream.last_sequence + 1), rng.randint(0, max(0, self.time_us) + 1)
            found = stream._batch_with(sequence)
            wanted = next((header for header in headers if header.last_sequence >= sequence), None)
            assert (found and found.header) == wanted, f"seed {self.seed}: {name} at {sequence}"
            first = next((h.first_sequence for h in headers if h.time_us >= time_us), stream.last_sequence + 1)
            assert stream.sequence_at(time_us) == first, f"seed {self.seed}: {name} at the time {time_us}"
        self.counts["thinned entries"] += sum(s.batches > len(s) for s in stream._segments)
        self.files.hook, self.files.room = hook, room
