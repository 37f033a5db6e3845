"""The base of every workload."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

from bench.peers.peer import Peer, Running

Figures = dict[str, Any]


class Case(NamedTuple):
    """One size of a workload: what a table calls it, and its numbers."""

    name: str
    values: dict[str, Any]


class Column(NamedTuple):
    """A figure in a table. ``unit``: rate, bytes, s, ns, count, share, word. ``better``: high, low, or no matter."""

    title: str
    key: str
    unit: str
    better: str = ""


class Workload(ABC):
    """A workload. Its first column is the headline, of which ratios are taken."""

    name: str
    about: str
    columns: Sequence[Column]
    base_case: str | None = None
    """The case that a peer's others are compared with."""
    unsuited = ""
    """The reason why no case suits a peer, where that is to be told."""

    @abstractmethod
    def cases(self, tiny: bool) -> list[Case]: ...

    @abstractmethod
    def run(self, running: Running, case: Case, seconds: float) -> Figures: ...

    def peer(self, peer: Peer, case: Case) -> Peer:
        """The peer as it is started for this case."""
        return peer.tuned(self.name)

    def suits(self, peer: Peer, case: Case) -> bool:
        """Whether the peer can be measured so."""
        return not peer.is_limit


FLOOD_COLUMNS = (
    Column("deliveries/s", "deliveries_per_s", "rate", "high"),
    Column("lost", "lost", "count"),
    Column("cut off", "disconnected", "count"),
    Column("peak memory", "peak_bytes", "bytes", "low"),
    Column("published/s", "published_per_s", "rate"),
    Column("drained s", "drain_s", "s"),
    Column("per CPU s", "deliveries_per_cpu_s", "rate"),
    Column("CPU broker", "broker_cpu", "share"),
    Column("CPU driver", "driver_cpu", "share"),
)
