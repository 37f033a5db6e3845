"""The checker: whether what the clients saw can be the story of a broker that keeps its word. It knows of no broker.

What is demanded, of every box (a durable queue, or a durable subscription; see event.py):

- *Nothing is lost.* A durable record that was confirmed, or whose transaction's commit was answered, has been settled
  by some client at the end of the story, for there everything that waits is fetched and acknowledged. A record that
  was rejected for good turns up in the box for dead letters, or once more where it was.
- *What is settled stays settled.* It is certain once something durable was confirmed that was published later on the
  same connection, or the commit that contained it was answered. From then on the record is never delivered again.
  The same for what was purged or deleted.
- *Nothing is delivered twice without reason*, also no dead letter: it is one commit with the settlement of what died,
  so there is one of each record at most. Not while a client has it that is still connected and has not given it
  back, not as new if it was delivered since the broker began; so all that doubles records is a connection that ends, a
  client that returns them, and a kill before a settlement was certain. (Who is cut off by the broker learns of it
  later than others are given what it has, and may read its own last deliveries later, too.)
- *Nothing appears* that was not published to this box; that was put off in a transaction whose commit was not asked
  for; that was published as transient, before the broker began; or that is not byte for byte what was published.
- *Order.* What a connection is given of one publisher's connection and as new goes up; who has a box to himself is
  given everything in order, delivered again or not.
- *What waits can be counted.* After a start there is no less in a box than what was confirmed and not (even perhaps)
  settled, and no more than all that was published, certainly settled records aside.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from enum import Enum

from tests.crash.event import (
    Asked,
    Closed,
    Committed,
    Confirmed,
    Counted,
    Cut,
    Delivered,
    Emptied,
    Event,
    Killed,
    Returned,
    RolledBack,
    Sent,
    Settled,
    Wrong,
)

EXAMPLES = 6


class State(Enum):
    PUT_OFF = "put off in a transaction"
    SENT = "sent"
    CONFIRMED = "confirmed"


class Record:
    __slots__ = ("boxes", "confirmed_at", "conn", "durable", "life", "said", "sent_at", "state")

    def __init__(self, sent: Sent, life: int, said: int, at: int) -> None:
        self.boxes = sent.boxes
        self.conn = sent.conn
        self.durable = sent.durable
        self.state = State.PUT_OFF if sent.put_off else State.SENT
        self.life = life
        self.said = said
        """How many settlements its connection had said before it."""
        self.sent_at = at
        self.confirmed_at: int | None = None

    def comes_before(self, other: Record) -> bool:
        """A connection that is not read may be outrun by the one that its client has next."""
        return self.conn == other.conn or (self.confirmed_at is not None and self.confirmed_at < other.sent_at)


class Fate:
    """Of a record in a box."""

    __slots__ = ("again", "by", "certain", "conn", "dead", "delivered", "died", "life", "settled")

    def __init__(self) -> None:
        self.delivered = 0
        self.life = 0
        """When it was delivered last."""
        self.conn = 0
        """Who has it; 0: nobody that is connected."""
        self.by = 0
        """To whom it was delivered last."""
        self.again = False
        """That delivery was marked as delivered again."""
        self.settled = False
        """A client said so."""
        self.certain = False
        self.dead = ""
        """Where it goes, rejected."""
        self.died = ""
        """Where it may have gone, rejected before it was delivered once more."""

    def end(self, dead: str) -> None:
        self.settled, self.dead, self.died = True, dead, dead or self.died


class Conn:
    __slots__ = ("certain", "cut", "doubts", "holds", "put_off", "said")

    def __init__(self) -> None:
        self.said: list[Fate] = []
        self.certain = 0
        """So many of these are."""
        self.put_off: list[tuple[Fate | Record, str]] = []
        """What the transaction settles and publishes, and where the dead go."""
        self.holds: list[Fate] = []
        self.cut = False
        self.doubts: list[str] = []
        """What is wrong unless it was cut off."""


def split(record: str) -> tuple[str, int]:
    publisher, number = record.split(":")
    return publisher, int(number)


class Checker:
    """``unordered``: boxes into which a record may come more than once, in any order. ``groups``: those of MQTT's
    shared subscriptions. What another client of the group was sent, and perhaps never read, comes from there unmarked:
    DUP is for the same client (MQTT 5, 3.3.1.1)."""

    def __init__(self, unordered: frozenset[str] = frozenset(), groups: frozenset[str] = frozenset()) -> None:
        self._unordered = unordered
        self._groups = groups
        self._ended_at = 0
        """When a connection ended last."""
        self.wrong: list[str] = []
        self.delivered = self.confirmed = self.again = 0
        self.life = 1
        self._seen = 0
        self._records: dict[str, Record] = {}
        self._fates: defaultdict[str, dict[str, Fate]] = defaultdict(dict)
        self._conns: defaultdict[int, Conn] = defaultdict(Conn)
        self._doubted: dict[int, None] = {}
        """Connections there are doubts about."""
        self._fresh: dict[tuple[str, str, int], int] = {}
        self._any: dict[tuple[str, str, int], int] = {}

    def check(self, events: Iterable[Event]) -> None:
        for event in events:
            self.see(event)
        self.finish()

    def _say(self, text: str) -> None:
        self.wrong.append(f"life {self.life}: {text}")

    def _fate(self, box: str, record: str) -> Fate:
        found = self._fates[box].get(record)
        if found is None:
            found = self._fates[box][record] = Fate()
        return found

    def see(self, event: Event) -> None:
        self._seen += 1
        match event:
            case Sent():
                conn = self._conns[event.conn]
                record = self._records[event.record] = Record(event, self.life, len(conn.said), self._seen)
                if event.put_off:
                    conn.put_off.append((record, ""))
            case Confirmed(name):
                self._confirm(self._records[name])
            case Delivered():
                self._deliver(event)
            case Settled():
                self._settle(event)
            case Returned(box, name, _):
                self._fate(box, name).conn = 0
            case Asked(number):
                for what, dead in self._conns[number].put_off:
                    if isinstance(what, Record):
                        what.state = State.SENT
                    else:
                        what.end(dead)
            case Committed(number):
                put_off, self._conns[number].put_off = self._conns[number].put_off, []
                for what, _ in put_off:
                    if isinstance(what, Record):
                        self._confirm(what)
                    else:
                        what.certain = True
            case RolledBack(number):
                self._conns[number].put_off = []
            case Emptied(box, number):
                for _, fate, _ in self._of(box):
                    fate.end("")
                    self._conns[number].said.append(fate)
            case Counted(box, count):
                self._count(box, count)
            case Closed(number):
                for fate in self._conns[number].holds:
                    if fate.conn == number:
                        fate.conn = 0
                self._conns[number].holds = []
                self._ended_at = self._seen
            case Cut(number):
                self._conns[number].cut = True
            case Killed(life):
                self._resolve()
                self.life = life + 1
            case Wrong(text):
                self._say(text)

    def _confirm(self, record: Record) -> None:
        record.state, record.confirmed_at = State.CONFIRMED, self._seen
        self.confirmed += 1
        conn = self._conns[record.conn]
        if not record.durable:
            return
        for fate in conn.said[conn.certain : record.said]:
            fate.certain = True
        conn.certain = max(conn.certain, record.said)

    def _settle(self, event: Settled) -> None:
        fate, conn = self._fate(event.box, event.record), self._conns[event.conn]
        if event.put_off:
            conn.put_off.append((fate, event.dead))
        else:
            fate.end(event.dead)
            conn.said.append(fate)

    def _deliver(self, event: Delivered) -> None:
        box, name, number = event.box, event.record, event.conn
        self.delivered += 1
        self.again += event.again
        record = self._records.get(name)
        if record is None:
            self._say(f"{box} delivered {name}, which nobody published")
            return
        fate = self._fate(box, name)
        if not event.whole:
            self._say(f"{box} delivered {name} with another body than it was published with")
        if box not in record.boxes and not any(self._fate(b, name).died == box for b in record.boxes):
            self._say(f"{box} delivered {name}, which was for {', '.join(record.boxes)}")
        if record.state is State.PUT_OFF:
            self._say(f"{box} delivered {name}, whose transaction was not committed")
        if not record.durable and record.life < self.life and box in record.boxes:  # dead letters are recorded
            self._say(f"{box} delivered {name}, a transient record of life {record.life}")
        if fate.certain:
            self._say(f"{box} delivered {name} again ({_shown(event)}), which was certainly settled")
        read_late = fate.conn and fate.again and not event.again  # it was given it before who has it now
        if fate.conn:
            text = f"{box} delivered {name} to connection {number}, and connection {fate.conn} has it"
            self._doubt(number if read_late else fate.by, text)
        elif (fate.delivered and fate.life == self.life and not event.again and box not in self._unordered
              and not self._unmarked(event)):  # fmt: skip
            self._doubt(fate.by, f"{box} delivered {name} as new, for the second time in this life")
        self._order(event, fate)
        fate.delivered += 1
        if read_late:
            return
        fate.again = event.again
        fate.by = number
        fate.life = self.life
        fate.settled, fate.dead = False, ""
        fate.conn = number
        self._conns[number].holds.append(fate)

    def _doubt(self, number: int, text: str) -> None:
        """It is wrong, unless this connection, which had the record, was cut off. 0: nobody had it."""
        if number:
            self._conns[number].doubts.append(text)
            self._doubted[number] = None
        else:
            self._say(text)

    def _resolve(self) -> None:
        """Who was cut off in this life knows it by now."""
        for number in self._doubted:
            conn = self._conns[number]
            if not conn.cut:
                for text in conn.doubts:
                    self._say(text)
            conn.doubts = []
        self._doubted = {}

    def _order(self, event: Delivered, fate: Fate) -> None:
        publisher, number = split(event.record)
        key = event.box, publisher, event.conn
        if event.box not in self._records[event.record].boxes or event.box in self._unordered:
            return  # dead letters come in the order in which they died
        if not event.again:
            last = self._fresh.get(key, -1)
            if self._behind(event.record, publisher, last) and not self._unmarked(event):
                self._doubt(fate.by, f"{event.box} delivered {event.record} as new behind {publisher}:{last}")
            self._fresh[key] = max(number, last)
        if event.alone:
            if self._behind(event.record, publisher, self._any.get(key, -1)):
                text = f"{event.box} delivered {event.record} ({_shown(event)}) behind {publisher}:{self._any[key]}"
                if fate.life == self.life:
                    self._doubt(fate.by, text)  # who had it may have gone unnoticed: it publishes, too, and is not read
                else:
                    self._say(text)
            self._any[key] = number

    def _unmarked(self, event: Delivered) -> bool:
        """Another client of the group may have been sent it."""
        return event.box in self._groups and self._records[event.record].sent_at < self._ended_at

    def _behind(self, record: str, publisher: str, last: int) -> bool:
        """It comes behind one that it had to come before."""
        if split(record)[1] > last:
            return False
        return self._records[record].comes_before(self._records[f"{publisher}:{last}"])

    def _count(self, box: str, count: int) -> None:
        least = most = 0
        for _, fate, record in self._of(box):
            if record.state is State.PUT_OFF or (not record.durable and record.life < self.life):
                continue
            most += not fate.certain
            least += record.durable and record.state is State.CONFIRMED and not fate.settled
        if not least <= count <= most:
            self._say(f"{box} has {count} records, and must have from {least} to {most}")

    def _of(self, box: str) -> Iterable[tuple[str, Fate, Record]]:
        for name, record in self._records.items():
            if box in record.boxes:
                yield name, self._fate(box, name), record

    def finish(self) -> None:
        """Everything that waited has been fetched and acknowledged."""
        self._resolve()
        lost: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
        for name, record in self._records.items():
            if record.state is not State.CONFIRMED or not record.durable:
                continue
            for box in record.boxes:
                fate = self._fate(box, name)
                if not fate.settled:
                    lost[box, record.life].append(f"{name} (delivered {fate.delivered} times)")
                elif fate.dead and not self._fate(fate.dead, name).settled:
                    lost[fate.dead, record.life].append(f"{name} (rejected in {box})")
        for (box, life), names in lost.items():
            more = f" and {len(names) - EXAMPLES} more" if len(names) > EXAMPLES else ""
            self._say(f"{box} has lost, confirmed in life {life}: {', '.join(names[:EXAMPLES])}{more}")


def _shown(event: Delivered) -> str:
    return "delivered again" if event.again else "as new"
