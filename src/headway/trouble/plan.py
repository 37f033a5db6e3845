"""The plan of a run: which trouble, how much of it, and the traffic that it is made beside."""

from __future__ import annotations

from dataclasses import dataclass

KEEP_ALIVE_S = 10
"""Asked for by every client, so that a broker which looks for dead peers finds one within a short run."""


@dataclass(frozen=True)
class Plan:
    kinds: dict[str, int]
    """How many of each kind of trouble."""
    name: str
    """Clients' names begin with it; no other run has it."""
    prefix: str
    """All topics begin with it."""
    controls: int = 5
    rate: float = 500.0
    """Records a second, of all topics together."""
    size_bytes: int = 1000
    topics: int = 4
    listen: str | None = None
    """A filter of traffic that others make; None: the run has a publisher of its own."""
    calm_s: float = 10.0
    """For how long the controls are alone."""
    trouble_s: float = 60.0
    qos: int = 1
    """The records' QoS, in MQTT's words; 1: confirmed to the publisher."""
    trickle_bytes: float = 2000.0
    """A trickling consumer reads so much a second."""
    window: int = 20
    """Deliveries that consumers who acknowledge late, or never, permit without an acknowledgement."""
    tolerate_s: float = 0.01
    """The controls' p99 may grow by so much, or to twice of what it was, before it counts as harm."""
    seed: int = 1

    @property
    def traffic(self) -> list[str]:
        """The topics of the publisher."""
        return [f"{self.prefix}/traffic/{number}" for number in range(self.topics)]

    @property
    def filters(self) -> list[str]:
        """The filters of an ordinary consumer."""
        return [self.listen] if self.listen is not None else [f"{self.prefix}/traffic/#"]

    @property
    def bursts(self) -> str:
        """The topic of a bursty producer is below it."""
        return f"{self.prefix}/burst"
