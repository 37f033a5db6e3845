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
   if that is longer (``core/policy/meters/usual_pause.py``). All that it takes at once is one step, and who takes all
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
from headway.server.progress.piece_budget import SMALL_BYTES
from headway.server.progress.small_pieces import FINE_BYTES
from headway.server.progress.tcp_info import TcpInfo

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
