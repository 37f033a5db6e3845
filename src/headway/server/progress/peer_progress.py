"""The progress of a peer: what its application has read, as far as the two kernels tell.

Theory of operation. What a peer on this host has read is known (peer_sockets.py), and so is each of its pauses. All
that follows is about remote ones.

That our kernel takes bytes says little: its send buffer holds a quarter of a megabyte. What the
peer's kernel acknowledges follows the application as soon as the peer's receive buffer is full, but in *lumps*: that
kernel frees a buffer only when all of it has been read, and joins what arrives into buffers of up to 110 kB. A reader
of 5 kB/s then makes progress every 22 s, which looks as if it did not read at all.

Two things follow:

1. A buffer is joined of 17 pieces at most, and bytes sent with ``MSG_EOR`` are a piece of their own. ``SMALL_BYTES`` at
   a time, the lumps are at most ``LUMP_BYTES``, and a reader of 5 kB/s is seen to move every 4 s. That costs a system
   call for each piece, so it is done only for ``FINE_BYTES``, as much as both kernels' buffers hold, while the pace of
   a peer is not known: when it has stood still for ``STILL_S``, and for ``NEW_S`` from the beginning of its connection
   or of a burst. (A receive buffer holds fewer small pieces than large ones, and drops what it has no room for, so a
   client that reads seldom would get less.) A new peer that reads at once is found out after ``TRIED_BYTES``
   (connection.py), and all connections together have ``PIECES_A_S``.
2. A peer has a *usual pause* between two steps: the longest of the last ones, or what a full lump takes at that pace
   if that is longer (``core/policy/meters/meter.py``). All that it takes at once is one step, and who takes all
   that there is would not pause for longer before a full lump. How long a consumer stands still is compared with that
   (``core/policy/meters/meter.py``).

A peer whose host leaves our tries unanswered is *silent*, however its application usually reads. Segments that are sent
again are answered even by a host whose buffers are full, and so are probes of a closed window, but for two within half
a second (``net.ipv4.tcp_invalid_ratelimit``). The first probe after its death may come late: while the window stays
closed, they come ever more seldom.

Times are seconds on the broker's clock.
"""

from __future__ import annotations

from math import inf

from headway.core.consumer import PeerState
from headway.core.policy import ANY_LUMP_BYTES, UsualPause
from headway.server.progress.fresh_window import STILL_LOOK_S, FreshWindow, RoomLooks
from headway.server.progress.tcp_info import TcpInfo

# -- piece budget ------------------------------------------------------------------------------------------------------
#
# Small pieces cost a system call each, so all connections together have a budget of them.


SMALL_BYTES = 1024
TRIED_BYTES = 96 * 1024
PIECES_A_S = 5000
"""Pieces in a second, for all connections together."""
PIECES_MAX = 500
"""Pieces at once: they take some 5 to 10 ms, for which everybody else waits."""


class PieceBudget:
    """The small pieces that all connections together may still send."""

    __slots__ = ("_left", "_refilled_s")

    def __init__(self) -> None:
        self._left = float(PIECES_MAX)
        self._refilled_s = 0.0

    def plenty(self, now: float) -> bool:
        """Tells whether there are pieces to spare: those who have just come need them most."""
        self._refill(now)
        return self._left > PIECES_MAX / 2

    def _refill(self, now: float) -> None:
        self._left = min(PIECES_MAX, self._left + (now - self._refilled_s) * PIECES_A_S)
        self._refilled_s = now

    def take(self, size: int, now: float) -> bool:
        """Takes the pieces for so many bytes. Returns False if there are not so many."""
        self._refill(now)
        pieces = -(-min(size, TRIED_BYTES) // SMALL_BYTES)
        if pieces > self._left:
            return False
        self._left -= pieces
        return True


# -- small pieces ------------------------------------------------------------------------------------------------------
#
# The small pieces in which a remote peer is sent bytes while nobody knows how it reads.


FINE_BYTES = 384 * 1024
NEW_S = 2.0
BURST_BYTES = 64 * 1024
AGAIN_S = 30.0
"""A burst of so many bytes is sent as if the peer was new, not sooner than so long after the last time."""


class SmallPieces:
    """The small pieces of one connection. Times are seconds on the broker's clock."""

    __slots__ = ("_budget", "_from_bytes", "_since_s", "_until_s", "left_bytes")

    def __init__(self, budget: PieceBudget, now: float) -> None:
        self._budget = budget
        self._since_s, self._until_s = now, now + NEW_S
        """When they last began, and when they end."""
        self.left_bytes = FINE_BYTES
        """So many bytes are still to be sent in small pieces."""
        self._from_bytes = 0
        """All taken bytes from this one on were sent in small pieces, if these have not ended."""

    def begin(self, now: float, taken_bytes: int, seconds: float = inf) -> None:
        """Sends small pieces from now on."""
        if self.left_bytes <= 0:
            self._from_bytes = taken_bytes
        self.left_bytes, self._since_s, self._until_s = FINE_BYTES, now, now + seconds

    def may_begin(self, now: float) -> bool:
        """Tells whether a burst may be sent in small pieces: they were not sent of late, and there are many left."""
        return now - self._since_s >= AGAIN_S and self._budget.plenty(now)

    def due(self, now: float) -> bool:
        return now <= self._until_s

    @property
    def tried(self) -> bool:
        """Tells whether a new peer has got so many that it shows whether it reads."""
        return self._until_s < inf and self.left_bytes <= FINE_BYTES - TRIED_BYTES

    def take(self, size: int, now: float) -> bool:
        """Takes the pieces for so many bytes. Returns False if all connections together have no more."""
        return self._budget.take(size, now)

    def fill(self, acknowledged_bytes: int, held_bytes: int) -> bool:
        """Tells whether all that the peer's host may hold, ``held_bytes``, came in small pieces."""
        large_bytes = self._from_bytes + held_bytes if self._from_bytes else 0
        return self.left_bytes > 0 and acknowledged_bytes >= large_bytes


# -- peer progress -----------------------------------------------------------------------------------------------------


ROOM_BYTES = 48 * 1024
"""A peer that has so much room when so many bytes have come has read most of them: Linux offers 128 KiB at first."""
SMALL_TAKES = 2.3
"""Linux takes so many times the memory for a byte in a small piece as for one in a large piece."""
LUMP_BYTES = 17 * SMALL_BYTES
FULL_LUMP_BYTES = 112 * 1024
STILL_S = 2.0
LUMPS_S = 1.0
"""A peer with shorter pauses has no pace of its own: it takes what comes."""
UNSEEN_S = 1.0
"""After a time without looks longer than this, nobody knows when the peer moved."""
LOSS_WINDOW_S = 5.0
LOSS_SHARE = 0.03
"""A network that loses more than this share of the bytes is at fault. What a host with full buffers drops is not lost
on the way, so losses count only while the window is open."""
RESENT_TRIES = 2
LOSS_BYTES_MIN = 16 * 1024
"""A single record that was sent again, because its acknowledgement came late, is no share of less than this."""
LIMITED_MS = 1500
"""A live host leaves a probe unanswered if it has answered one in the last half second. It answers the next one, which
comes no later than this after its last answer."""
ANSWER_S = 1.0
"""A probe that was just sent may be answered yet."""
PROBES_LOST = 2
"""On a line that loses packets, one unanswered probe says little."""


class PeerProgress:
    """The steps and pauses of one peer."""

    __slots__ = (
        "_acked_bytes",
        "_answered_s",
        "_burst",
        "_exact",
        "_had_all",
        "_looked_s",
        "_losses",
        "_lossy",
        "_read_bytes",
        "_resends",
        "_sent",
        "_settled_bytes",
        "_small_since_bytes",
        "_usual",
        "_usual_bytes",
        "_widest",
        "moved_s",
        "silent_s",
        "small",
    )

    def __init__(self) -> None:
        self.moved_s = 0.0
        """When the peer was last seen to have read or acknowledged more."""
        self.silent_s = inf
        """Since when its host has answered nothing, as far as that is known; inf: it answers."""
        self.small = True
        """All that its host may hold unread came in small pieces."""
        self._acked_bytes = self._read_bytes = -1
        self._exact = False
        """At the last look it was known what the application has read."""
        self._looked_s = -inf
        self._answered_s = inf
        """Until then its host is not known to have left a probe unanswered."""
        self._burst: tuple[float, float, int] | None = None
        """A pause, when it ended, and what was taken since then, at once; None: that step is over."""
        self._had_all = False
        """At the last look nothing waited for it."""
        self._usual = UsualPause()
        self._usual_bytes = 0.0
        self._small_since_bytes = self._settled_bytes = -1
        """The acknowledged bytes when small pieces began, and when all that was sent before them has been read."""
        self._sent = (0, 0.0)
        """Bytes sent, and bytes lost, at the last look."""
        self._losses = (inf, 0, 0.0)
        """(since when, bytes sent, bytes lost) while the window was open."""
        self._lossy = False
        self._resends = False
        """Bytes were sent again more than once since its last step."""
        self._widest = 0
        """The widest window that was seen: the room of a buffer in which nothing is unread."""

    def look(self, info: TcpInfo, now: float, stands_since_s: float, more_waits: bool = True) -> None:
        """Takes in what the kernel knows now. ``stands_since_s``: when our kernel last took bytes, or bytes began to
        wait; it counts if the peer was not looked at of late. ``more_waits``: bytes wait that our kernel has not."""
        if now - self._looked_s > UNSEEN_S:
            moved_s = self._looked_s if self._read_bytes < info.read_bytes else -inf  # or later
            self.moved_s, self._burst, self._answered_s = max(stands_since_s, moved_s), None, now
        elif self._had_all and stands_since_s > self.moved_s:  # nothing waited for it before that
            self.moved_s = stands_since_s
        self._exact = info.exact
        if self._read_bytes < info.read_bytes and now - self._looked_s <= UNSEEN_S:
            pause_s, self.moved_s = now - self.moved_s, now
            if not self._resends:  # else the pause was the network's
                self._note_step(pause_s, info.read_bytes - self._read_bytes)
            self._resends = False
        self._had_all = not (more_waits or info.unacked or info.unsent_bytes or info.unread_bytes)
        if self._had_all:  # from now on it does not pause, it waits
            self._end_burst()
            self.moved_s = now
        elif info.unsent_bytes and now - self.moved_s >= LUMPS_S and not info.exact:
            self._end_burst(limited=True)
        if info.retransmits >= RESENT_TRIES:
            self._resends = True
        self._acked_bytes, self._looked_s = info.acked_bytes, now
        self._read_bytes = max(self._read_bytes, info.read_bytes)
        self._widest = max(self._widest, info.window)
        self._count_losses(info, now)
        self._count_probes(info, now)
        self.silent_s = min(self.silent_s, now - info.tried_s) if self.silent(info) else inf

    def _count_losses(self, info: TcpInfo, now: float) -> None:
        before, self._sent = self._sent, (info.sent_bytes, info.lost_bytes)
        since, sent, lost = self._losses
        if since > now or not before[0]:
            self._losses = (now, 0, 0.0)
            return
        if not info.window_closed:
            sent, lost = sent + info.sent_bytes - before[0], lost + info.lost_bytes - before[1]
            self._losses = (since, sent, lost)
        if now - since > LOSS_WINDOW_S:
            self._lossy = sent >= LOSS_BYTES_MIN and lost > LOSS_SHARE * sent
            self._losses = (now, 0, 0.0)

    def _note_step(self, pause_s: float, step_bytes: int) -> None:
        """Notes that the peer took so much after a pause. What it takes at once after that is part of the step."""
        if self._exact:
            self._note_pause(pause_s, self.moved_s, step_bytes)
        elif pause_s < LUMPS_S and self._burst is not None:
            self._burst = *self._burst[:2], self._burst[2] + step_bytes
        elif pause_s < LUMPS_S:
            self._note_pause(pause_s, self.moved_s, step_bytes)
        else:
            self._end_burst()
            self._burst = pause_s, self.moved_s, step_bytes
        if self._burst is not None and self._burst[2] >= FULL_LUMP_BYTES:
            self._end_burst()

    def _end_burst(self, limited: bool = False) -> None:
        """Notes the pause before a step that is over. ``limited``: it would have taken more, but its host had no room;
        then it would have paused for longer before a full lump."""
        if self._burst is None:
            return
        pause_s, at_s, step_bytes = self._burst
        full_bytes = step_bytes if not limited else max(step_bytes, LUMP_BYTES if self.small else FULL_LUMP_BYTES)
        self._burst = None
        self._note_pause(pause_s, at_s, full_bytes, full_bytes / step_bytes)

    def _note_pause(self, pause_s: float, at_s: float, step_bytes: int, times: float = 1.0) -> None:
        if self._usual.note(pause_s, at_s, times):
            self._usual_bytes = step_bytes

    def note_pieces(self, small: bool) -> None:
        """Notes whether all that its host may hold unread came in small pieces. In large ones it would pause longer."""
        if self.small and not small and self.has_pace:
            self._note_pause(self.usual_pause_s, self.moved_s, FULL_LUMP_BYTES, FULL_LUMP_BYTES / self._usual_bytes)
        self.small = small

    def _count_probes(self, info: TcpInfo, now: float) -> None:
        if info.probes < (PROBES_LOST if info.loses else 1) or info.heard_ms < LIMITED_MS:
            self._answered_s = now

    def change_over(self, info: TcpInfo) -> None:
        """Notes that small pieces are sent after large ones. Until the peer has read the large ones, it acknowledges
        less than it reads: the small ones take up more of its buffer."""
        if self._small_since_bytes < 0 or info.acked_bytes > self._small_since_bytes + 4 * FINE_BYTES:
            self._small_since_bytes = info.acked_bytes
            self._settled_bytes = info.acked_bytes + int(min(info.acked_bytes, FINE_BYTES) / SMALL_TAKES)

    @property
    def settles(self) -> bool:
        """Tells whether the peer still reads large pieces, and its buffer fills up with small ones."""
        return self._acked_bytes < self._settled_bytes

    def stands_since_s(self, taken_s: float) -> float:
        """Returns since when the peer has taken nothing. ``taken_s``: when our kernel last took bytes; this counts
        where it is news, because the peer was not looked at since it last stood still."""
        return taken_s if taken_s > self._looked_s + UNSEEN_S else self.moved_s

    @property
    def usual_pause_s(self) -> float:
        """Returns the longest of the peer's last pauses between two steps. Older ones fade with each step; a pause that
        goes on does not make others less usual."""
        return self._usual.seconds(self.moved_s)

    @property
    def has_pace(self) -> bool:
        """Tells whether the peer is known to pause between its steps."""
        return self.usual_pause_s >= LUMPS_S

    def held_bytes(self, info: TcpInfo) -> int:
        """Returns up to how many bytes a peer of unknown habits may hold unread: all for which it has had room."""
        return min(info.acked_bytes, self._widest)

    def unread_bytes(self, info: TcpInfo) -> int:
        """Returns how much the peer's kernel holds that its application has not read, as its window tells. While that
        kernel still widens a new connection's window, it tells too little."""
        if info.exact:
            return info.unread_bytes
        return min(info.acked_bytes, max(0, self._widest - info.window))

    def lump_bytes(self) -> float:
        """Returns how much the peer may have read since its last step."""
        if self._exact:
            return self._usual_bytes
        return ANY_LUMP_BYTES if self.settles else self._usual_bytes or LUMP_BYTES

    def silent(self, info: TcpInfo) -> bool:
        """Tells whether the peer's host answers neither segments that are sent again nor probes of its closed window:
        it is down, or the network is broken. That does not depend on how its application reads. An answered probe is
        not counted in ``probes`` any more."""
        return info.unanswered or (info.probes > 0 and self._looked_s - self._answered_s >= ANSWER_S)

    def state(self, info: TcpInfo) -> PeerState:
        """Returns hints for the cause of a verdict.

        Losses are no cause where the peer's host has all that was sent, and nothing waits for it."""
        silent = self.silent(info)
        lossy = self._lossy and info.unacked + info.unsent_bytes > 0
        unread = info.window_closed or info.probes > 0 or info.unread_bytes > 0
        return PeerState(silent or lossy, not silent and unread)


NO_PROGRESS = PeerProgress()
"""The progress of a peer of which nobody knows how it takes bytes, because none of its consumers has lagged yet."""


# -- reading -----------------------------------------------------------------------------------------------------------
#
# A reading tells since when a peer's application has read nothing, also while its kernel still takes bytes for it.
#
# Theory of operation. What a peer on this host has read is known (peer_sockets.py). Of a remote one the window tells. A
# receive buffer of a megabyte takes a quarter of a minute to fill, and until then a peer that has stopped acknowledges
# all it is sent. But its *window* shrinks by what it acknowledges, as nobody makes room; the window of one that reads
# stays about as wide as it was. So a peer reads nothing between two looks if
#
# - its window has lost ``FILL_SHARE`` of the bytes that it has acknowledged, or more (not all of them: bytes in large
#   segments take less memory than its kernel reckons with, and a new connection's window is still widened), or
# - its window is closed, bytes wait for it, and it has acknowledged nothing.
#
# Any other change says that it reads, or may do so; if in doubt, it reads. Its kernel makes room in lumps, so even one
# that reads half of what comes reads nothing at some looks. How long it usually reads nothing is learnt as usual pauses
# are. Until it has acknowledged more than its buffers hold, it was never seen to read, and nobody knows what is usual
# for it: ``UNKNOWN_S`` counts.
#
# A glance at a peer that does not lag takes 3 us. It comes once a second, after ``GLANCE_BYTES`` each, of which a send
# counts ``SEND_BYTES`` besides what it takes; none while nothing is sent. All connections together have
# ``GLANCES_A_S``.


GLANCE_BYTES = 32 * 1024
SEND_BYTES = 4 * 1024
"""So a peer that is sent few and small records is glanced at, too."""
GLANCE_S = 1.0
GLANCES_A_S = 1000
FILL_SHARE = 0.55
"""A peer that reads nothing loses 0.61 with small pieces, and up to 1 with large ones; one that reads a fifth of what
comes loses 0.46 and less whenever its kernel has made room."""
STEP_BYTES = 16 * 1024
"""Less than this says nothing yet, unless nothing more comes for ``GLANCE_S``."""
LOOK_S = 0.1
"""Several consumers of one client are looked at at once."""
UNKNOWN_S = 4.2
READ_BYTES = 64 * 1024
"""A peer on this host that has read so much was seen to read."""
TIMES_WIDEST = 2
"""A buffer holds no more than so many times the widest window that it has offered."""


class Glances:
    """The glances of all connections together."""

    __slots__ = ("_left", "_since_s")

    def __init__(self) -> None:
        self._left, self._since_s = GLANCES_A_S, 0.0

    def take(self, now: float) -> bool:
        """Takes one. Returns False if there is none left in this second."""
        if now - self._since_s >= 1.0:
            self._left, self._since_s = GLANCES_A_S, now
        self._left -= 1
        return self._left >= 0


class Reading:
    """The reading of one peer. Times are seconds on the broker's clock."""

    __slots__ = (
        "_acked_bytes", "_began_s", "_exact", "_looked_s", "_read_bytes", "_still", "_unread", "_usual", "_widest",
        "_window", "read_s",
    )  # fmt: skip

    def __init__(self, now: float) -> None:
        self.read_s = now
        """When the peer may have read last."""
        self._began_s = now
        """When it may have stopped already: it read between this look and the next."""
        self._acked_bytes = self._window = self._widest = 0
        self._read_bytes = -1
        self._exact = False
        """At the last look it was known what it has read."""
        self._looked_s = float("-inf")
        self._still = False
        """At the last look it had read nothing since the look before."""
        self._unread = False
        """At the last look something was unread."""
        self._usual = UsualPause()

    def glance_due(self, now: float) -> bool:
        return now - self._looked_s >= GLANCE_S

    def look(self, info: TcpInfo, now: float) -> None:
        """Takes in what the kernel knows now."""
        taken, opened, passed_s = info.acked_bytes - self._acked_bytes, info.window - self._window, now - self._looked_s
        if passed_s < LOOK_S:
            return
        unread = info.unsent_bytes > 0
        if info.exact:
            still, unread = info.read_bytes <= self._read_bytes, unread or info.unread_bytes > 0
        elif 0 < taken < STEP_BYTES and opened <= 0 and passed_s < GLANCE_S:
            return
        else:
            still = -opened >= FILL_SHARE * taken if taken else unread and info.window_closed and opened <= 0
            unread = unread or max(self._widest, info.window) - info.window >= STEP_BYTES
        if not still:
            if self._still:
                self._usual.note(now - self.read_s, now, began_s=self._began_s)
            self._began_s, self.read_s = max(self._looked_s, self._began_s), now
        elif not self._unread:  # what is unread has come since the last look
            self._began_s, self.read_s = max(self._looked_s, self._began_s), now
        self._acked_bytes, self._window, self._looked_s = info.acked_bytes, info.window, now
        self._widest, self._read_bytes = max(self._widest, info.window), max(self._read_bytes, info.read_bytes)
        self._exact, self._still, self._unread = info.exact, still, unread

    @property
    def known_pause_s(self) -> float:
        """Returns for how long it usually reads nothing, as was seen of a peer on this host; else 0."""
        return self._usual.seconds(self.read_s) if self._exact else 0.0

    @property
    def usual_pause_s(self) -> float:
        """Returns for how long it usually reads nothing."""
        usual_s = self._usual.seconds(self.read_s)
        if self._exact:
            seen_to_read = self._read_bytes > READ_BYTES
        else:
            seen_to_read = self._acked_bytes > max(FINE_BYTES, TIMES_WIDEST * self._widest)
        return usual_s if seen_to_read else max(usual_s, UNKNOWN_S)


# -- room --------------------------------------------------------------------------------------------------------------
#
# How much more a peer on this host is sent, as far as that depends on what it reads.
#
# Two things limit it:
#
# - A peer that wants what is new, and reads slowly, is sent what it is about to read (fresh_window.py).
# - A peer that has read nothing for ``STANDS_S``, and much longer than usual, is sent nothing until it reads again, if
#   the two kernels hold ``STANDS_BYTES`` for it. They would take megabytes. What comes waits in its lane instead, where
#   it counts as lag, takes up memory that is charged, and may be replaced by newer records. When the peer reads, there
#   is enough for it to go on with.
#
# Whoever is limited is looked at again after ``look_s``; then it is as if its socket was writable.
#
# Times are seconds on the broker's clock.


STANDS_S = 8.0
STANDS_PAUSES = 2.0
STANDS_BYTES = 64 * 1024
ASKED_S = 0.005
"""The least time between two questions for what a peer has read, where room is sought."""
UNWANTED_S = 30.0
"""A client whose records were not conflated or discarded for so long does not mind how old they are."""


class Room:
    """The room of one peer."""

    __slots__ = ("_fresh", "_looked_s", "_looks", "_still", "_wanted_s", "limited")

    def __init__(self, looks: RoomLooks) -> None:
        self._looks = looks
        self._fresh = FreshWindow(looks)
        self._wanted_s = self._looked_s = -inf
        self._still = False
        """Whether it is sent nothing, because it reads nothing. Only ``_stand_still`` sets it."""
        self.limited = False
        """Whether the peer is sent less than there is, since the last look."""

    def freshen(self, now: float) -> bool:
        """Notes that the peer wants what is new. Returns whether it did not before, so that it has to be looked at."""
        news, self._wanted_s = now - self._wanted_s > UNWANTED_S, now
        return news

    def look(self, info: TcpInfo, now: float, reading: Reading, sent_bytes: int, held_bytes: int, waits: bool) -> None:
        """Takes in what the kernel knows, which must know what is unread, and what was sent in all. ``held_bytes``: of
        these, what no kernel has yet. ``waits``: there is more to send."""
        self._looked_s = now
        unread_bytes = info.unread_bytes + info.unsent_bytes
        long_s = max(STANDS_S, STANDS_PAUSES * reading.usual_pause_s)
        self._stand_still(unread_bytes >= STANDS_BYTES and now - reading.read_s >= long_s)
        if now - self._wanted_s <= UNWANTED_S:
            starved = waits and not unread_bytes
            self._fresh.look(now, unread_bytes + held_bytes, info.read_bytes, sent_bytes, starved)
        else:
            self._fresh.end()
        self.limited = self.bytes(sent_bytes) < inf

    def bytes(self, sent_bytes: int) -> float:
        """Returns how much more may be sent, as far as the last look knows. ``sent_bytes``: in all, until now."""
        return 0.0 if self._still else self._fresh.room_bytes(sent_bytes)

    def look_due(self, now: float) -> bool:
        return now - self._looked_s > (STILL_LOOK_S / 2 if self._still else ASKED_S)

    @property
    def look_s(self) -> float:
        """Returns after how many seconds there may be room again."""
        return max(STILL_LOOK_S, self._looks.every_s()) if self._still else self._fresh.look_s

    def end(self) -> None:
        """Takes all limits away: the peer is gone, or nobody knows any more what it reads."""
        self._stand_still(False)
        self._fresh.end()
        self.limited = False

    def _stand_still(self, still: bool) -> None:
        self._looks.peers += still - self._still
        self._still = still


NO_ROOM = Room(RoomLooks())
"""The room of a peer that is not on this host, or that nobody has looked at yet: it has no limit."""
