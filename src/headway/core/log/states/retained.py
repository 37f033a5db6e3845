"""Retained records: the last one of each topic that was published with the retain flag."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

from headway.core.base import Reason, Refused
from headway.core.log.lanes import Pool
from headway.core.message import SCAN_BYTES, SCAN_MAX, TREE_LEVELS, Record, TopicTree, is_deep

ENTRY_BYTES, LEVEL_BYTES = 500, 350
"""Measured sizes in memory: of a record besides its bytes, and of a level of its topic, which is a node of the tree."""
FIRST_LOOK = 32
"""The nodes that are visited while a client subscribes, to see whether there is anything for it. A filter with
wildcards may visit every node: that walk is a backfill, whose steps count for the turn (``Fanout``)."""


class Retained:
    """All retained records. Records beyond ``topics_max`` topics, or beyond ``bytes_max`` bytes of topics, payloads and
    properties, are refused. So are topics with very many levels, because each level is a node of the tree. The memory
    of all counts to ``pool``, which has a limit of its own (``Pool.tables_limit``)."""

    def __init__(self, topics_max: int = 1_000_000, bytes_max: int = 256 * 1024 * 1024) -> None:
        self.topics_max = topics_max
        self.bytes_max = bytes_max
        self.bytes = 0
        self.pool: Pool | None = None
        self._tree: TopicTree[Record] = TopicTree()

    def __len__(self) -> int:
        return len(self._tree)

    def put(self, record: Record) -> None:
        """Stores the record. A record with an empty payload deletes the one of its topic. Raises :class:`Refused`."""
        old = self._tree.get(record.topic)
        if not record.payload:
            if old is not None:
                self._tree.delete(record.topic)
                self.bytes -= old.size
                if self.pool is not None:
                    self.pool.add_tables(-_memory(old))
            return
        if is_deep(record.topic):
            text = f"nothing is retained for a topic of more than {TREE_LEVELS} levels: {record.topic[:60]!r}..."
            raise Refused(Reason.MEMORY_LIMIT, text)
        grown, pool = record.size - (old.size if old else 0), self.pool
        more = _memory(record) - (_memory(old) if old else 0)
        full = (old is None and len(self._tree) >= self.topics_max) or self.bytes + max(0, grown) > self.bytes_max
        if full or (pool is not None and more > 0 and pool.tables_bytes + more > pool.tables_limit):
            raise Refused(Reason.MEMORY_LIMIT, f"no room to retain a record of topic {record.topic!r}")
        self._tree.set(record.topic, record)
        self.bytes += grown
        if pool is not None:
            pool.add_tables(more)

    def get(self, topic: str) -> Record | None:
        return self._tree.get(topic)

    def topics(self) -> list[str]:
        return [topic for topic, _ in self._tree.match_filter("#")]

    def matching(
        self, filter: str, upto: int, now: float, accept: Callable[[Record], bool]
    ) -> RetainedRecords | None:
        """Returns the retained records for a new subscription, lazily, as a source of its backfill; None if a first
        look shows that there are none.

        A record that is replaced before its turn has a sequence beyond ``upto``; the lane delivers it instead."""
        if all(False for _ in self._tree.scan(filter, FIRST_LOOK)):
            return None
        return RetainedRecords(self, self._tree, filter, upto, now, accept)


class RetainedRecords:
    """The retained records of a filter, found one by one."""

    held_bytes = 0

    def __init__(
        self, retained: Retained, tree: TopicTree[Record], filter: str, upto: int, now: float,
        accept: Callable[[Record], bool],
    ) -> None:  # fmt: skip
        self._retained = retained
        self._left = tree.count(filter)
        """The number of topics that it has not come to; None: nobody knows how many match."""
        self._over = False
        self._found = self._walk(tree, filter, upto, now, accept)

    def __iter__(self) -> Iterator[Record | None]:
        return self

    def __next__(self) -> Record | None:
        try:
            return next(self._found)
        except StopIteration:
            self._over = True
            raise

    def close(self) -> None:
        self._over = True
        self._found.close()

    def waiting(self) -> tuple[int, int]:
        """Where nobody knows how many there are, they count as one."""
        left = 0 if self._over else 1 if self._left is None else max(0, self._left)
        return left, left * self._retained.bytes // max(1, len(self._retained))

    def _walk(
        self, tree: TopicTree[Record], filter: str, upto: int, now: float, accept: Callable[[Record], bool]
    ) -> Generator[Record | None, None, None]:
        looks = size = 0
        for found in tree.scan(filter, SCAN_MAX):
            record = None if found is None else found[1]
            if record is not None and self._left is not None:
                self._left -= 1
            if record is None:
                yield None
            elif record.sequence <= upto and record.expires_s > now and accept(record):
                yield record
            else:
                looks += 1
                size += record.size
                if looks >= SCAN_MAX or size > SCAN_BYTES:
                    yield None
                    looks = size = 0


def _memory(record: Record) -> int:
    return ENTRY_BYTES + record.size + LEVEL_BYTES * (1 + record.topic.count("/"))
