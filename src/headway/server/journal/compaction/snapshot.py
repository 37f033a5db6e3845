"""A snapshot is all metadata and positions as of one commit. It is collected while the broker works.

Theory of operation. The snapshot visits all objects in slices, at the ends of turns, so that a turn takes no longer
with many clients. Meanwhile it gets every commit. A commit updates the objects that the snapshot has visited. It visits
the other objects later, in their later state. So after the last visit the snapshot is as of the last commit. Further
commits update it until it is written. The writer's thread encodes the entries (``entries``).

Rules:
- Metadata and positions are folded as at a start (core/clients/durability/folding.py). An object that ends takes along
  all that belongs to it, even without an entry for it. Entries of an unknown client are ignored.
- Metadata is held as encoded bytes, in an order in which it can be restored.
- A slice comes right after a commit, because then all settled records are in committed positions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headway.core.broker import Broker
from headway.core.clients import RecoveredPosition, SubscriptionTerms
from headway.core.log import CommittedPosition, Ledger, MetadataChange
from headway.core.routing import Binding, Destination
from headway.server.journal.compaction.slices import SlicedPass
from headway.server.journal.entries import (
    SNAPSHOT_MARK,
    SNAPSHOT_METADATA,
    SNAPSHOT_POSITIONS,
    Clock,
    encode_metadata,
    encode_positions,
)
from headway.store.journal import Buffer, Entry

SLICE_ITEMS = 256


class _ClientEntries:
    __slots__ = ("ids", "session", "subscriptions")

    def __init__(self) -> None:
        self.session: Buffer = b""
        self.ids: dict[tuple[str, object], Buffer] = {}
        self.subscriptions: dict[object, Buffer] = {}


class Snapshot(SlicedPass):
    def __init__(self, broker: Broker, ledger: Ledger, clock: Clock) -> None:
        super().__init__()
        self._broker = broker
        self._ledger = ledger
        self._clock = clock
        self._exchanges: dict[str, Buffer] = {}
        self._queues: dict[str, Buffer] = {}
        self._bindings: dict[Binding, Buffer] = {}
        self._at: dict[Destination, dict[Binding, None]] = {}
        """The bindings of each source and destination."""
        self._clients: dict[str, _ClientEntries] = {}
        self._client_of: dict[object, _ClientEntries] = {}
        """The client of each subscription, by the subscription's number."""
        self._others: dict[tuple[str, object], Buffer] = {}
        self._positions: dict[int, RecoveredPosition] = {}

    # -- collecting -------------------------------------------------------------------------------------------------

    def _steps(self) -> Iterator[int]:
        for change in self._ledger.all_metadata():
            if change is not None:
                self._change(change, encode_metadata(change, self._clock.wall_offset_s).data[0])
            yield 1
        for position in list(self._ledger.positions.values()):
            if position.number in self._ledger.positions:
                committed = position.complete_position(self._broker.registry.sequence)
                self._positions[position.number] = RecoveredPosition(committed)
                yield 1 + len(committed.settled)
            else:
                yield 1
        for name in list(self._exchanges):  # an exchange may have ended with bindings that were not visited yet
            self._end_unused(name)
            yield 1

    def on_commit(
        self, changes: Iterable[tuple[MetadataChange, Entry]], positions: Iterable[CommittedPosition]
    ) -> None:
        """Adds the changes and positions of a commit."""
        for change, entry in changes:
            self._change(change, entry.data[0])
        for committed in positions:
            known = self._positions.get(committed.number)
            if known is None:
                self._positions[committed.number] = RecoveredPosition(committed)  # new, or not visited yet
            else:
                known.add(committed)

    def _change(self, change: MetadataChange, data: Buffer) -> None:
        _, what, name, terms = change
        match what, name:
            case "session", str():
                self._session(name, data, there=terms is not None)
            case (("arrived" | "flight"), (str(client), _)):
                self._unfinished(self._clients.get(client), (what, name), data, there=terms is not None)
            case "subscription", _:
                self._subscription(name, terms, data)
            case "exchange", str():  # in any case the old exchange of this name has ended
                self._exchanges.pop(name, None)
                self._unbind(Destination("exchange", name))
                if terms is not None:
                    self._exchanges[name] = data
            case "queue", str():
                if terms is not None:
                    self._queues[name] = data
                else:
                    self._queues.pop(name, None)
                    self._unbind(Destination("queue", name))
            case "binding", Binding():
                if terms is None:
                    self._binding_ended(name)
                else:
                    self._bindings[name] = data
                    for end in _ends(name):
                        self._at.setdefault(end, {})[name] = None
            case "reserved", _:
                pass
            case _ if terms is None:
                self._others.pop((what, name), None)
            case _:
                self._others[what, name] = data

    def _session(self, name: str, data: Buffer, *, there: bool) -> None:
        if there:
            self._clients.setdefault(name, _ClientEntries()).session = data
            return
        client = self._clients.pop(name, None)
        for number in client.subscriptions if client is not None else ():
            del self._client_of[number]

    def _unfinished(self, client: _ClientEntries | None, key: tuple[str, object], data: Buffer, *, there: bool) -> None:
        """Adds or removes an unfinished exactly-once publish or delivery."""
        if client is None:
            return
        if there:
            client.ids[key] = data
        else:
            client.ids.pop(key, None)

    def _subscription(self, number: object, terms: object, data: Buffer) -> None:
        client = self._client_of.pop(number, None)
        if client is not None:
            del client.subscriptions[number]
        client = self._clients.get(terms.client) if isinstance(terms, SubscriptionTerms) else None
        if client is not None:
            client.subscriptions[number] = data
            self._client_of[number] = client

    def _unbind(self, end: Destination) -> None:
        """Drops the bindings of an exchange or queue that has ended."""
        for binding in list(self._at.get(end, ())):
            self._binding_ended(binding)

    def _binding_ended(self, binding: Binding) -> None:
        if self._bindings.pop(binding, None) is None:
            return
        for end in _ends(binding):
            self._at[end].pop(binding)
            if not self._at[end]:
                del self._at[end]
        self._end_unused(binding.source)

    def _end_unused(self, name: str) -> None:
        """Drops an auto-delete exchange that ended with its last binding. There is no entry for that."""
        exchange = self._broker.registry.router.exchanges.by_name.get(name)
        if (exchange is None or not exchange.durable) and self._exchanges.pop(name, None) is not None:
            self._unbind(Destination("exchange", name))

    # -- writing ----------------------------------------------------------------------------------------------------

    def entries(self, sequence: int, reserved: int) -> list[Entry]:
        """Returns the snapshot's entries, as of this sequence. Another thread may call this after the last
        ``on_commit``."""
        first = encode_metadata(MetadataChange(sequence, "reserved", None, reserved), 0.0).data[0]
        entries = [Entry(SNAPSHOT_MARK, sequence, 1, (b"",))]
        entries += (Entry(SNAPSHOT_METADATA, sequence, 0, (data,)) for data in (first, *self._metadata()))
        positions = [recovered.position(number) for number, recovered in self._positions.items()]
        entries.append(encode_positions(positions, sequence, SNAPSHOT_POSITIONS))
        return entries

    def _metadata(self) -> Iterator[Buffer]:
        yield from self._exchanges.values()
        yield from self._queues.values()
        yield from self._bindings.values()
        for client in self._clients.values():
            yield client.session
            yield from client.ids.values()
        for client in self._clients.values():
            yield from client.subscriptions.values()
        yield from self._others.values()


def _ends(binding: Binding) -> set[Destination]:
    """Returns the source and the destination, which are one if an exchange is bound to itself."""
    return {Destination("exchange", binding.source), binding.destination}
