"""Reply codes (0-9-1, 1.2 of the reference). Soft codes close a channel, hard codes the connection."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

# -- codes -------------------------------------------------------------------------------------------------------------


class ReplyCode(IntEnum):
    SUCCESS = 200
    CONTENT_TOO_LARGE = 311
    NO_ROUTE = 312
    NO_CONSUMERS = 313
    CONNECTION_FORCED = 320
    INVALID_PATH = 402
    ACCESS_REFUSED = 403
    NOT_FOUND = 404
    RESOURCE_LOCKED = 405
    PRECONDITION_FAILED = 406
    FRAME_ERROR = 501
    SYNTAX_ERROR = 502
    COMMAND_INVALID = 503
    CHANNEL_ERROR = 504
    UNEXPECTED_FRAME = 505
    RESOURCE_ERROR = 506
    NOT_ALLOWED = 530
    NOT_IMPLEMENTED = 540
    INTERNAL_ERROR = 541

    @property
    def is_soft(self) -> bool:
        return self in _SOFT

    @property
    def word(self) -> str:
        """The code's name, which clients show in front of the text."""
        return self.name


_SOFT = frozenset({311, 312, 313, 403, 404, 405, 406})


# -- versions ----------------------------------------------------------------------------------------------------------
#
# Versions of AMQP: how a client asks for one, and how the methods of older versions differ from 0-9-1.
#
# The differences are those between the specifications' XML files. Fields that 0-9-1 calls reserved have the same bytes
# as the fields that older versions used (tickets, capabilities, realms). These differences remain:
#
# - 0-8 closes a connection with methods 60 and 61 instead of 50 and 51; its ``channel.open-ok`` has no argument, and
# its
#   ``basic.consume`` no table of arguments;
# - 0-9 has ``basic.recover-sync`` at 102 (answered with 101) instead of 110 (111);
# - clients of both ask for access tickets (class 30) before they declare or publish.


HEADER_BYTES = 8


class Version(NamedTuple):
    name: str
    major: int
    """Major version in ``connection.start``."""
    minor: int
    own: dict[int, int]
    """Method indexes (class id << 16 | method id) of this version by those of 0-9-1, where they differ."""
    shorter: frozenset[int]
    """Methods, by their index in 0-9-1, that lack the last argument. A client may send it all the same."""
    has_tickets: bool
    """Clients ask for access tickets."""

    def to_091(self, index: int) -> int:
        """Returns the method's index in 0-9-1; -1: this version has no such method."""
        if index in self.own:
            return -1
        return next((new for new, old in self.own.items() if old == index), index)

    def from_091(self, index: int) -> int:
        return self.own.get(index, index)


def _index(klass: int, method: int) -> int:
    return klass << 16 | method


AMQP_0_9_1 = Version("0-9-1", 0, 9, {}, frozenset(), False)
AMQP_0_9 = Version("0-9", 0, 9, {_index(60, 110): _index(60, 102), _index(60, 111): _index(60, 101)}, frozenset(), True)
AMQP_0_8 = Version(
    "0-8", 8, 0, {_index(10, 50): _index(10, 60), _index(10, 51): _index(10, 61)},
    frozenset({_index(20, 11), _index(60, 20)}), True,
)  # fmt: skip

OFFERED = b"AMQP\x00\x00\x09\x01"
"""The reply to an unknown protocol header, before the server closes (0-9-1, 4.2.2)."""
_HEADERS = {
    OFFERED: AMQP_0_9_1,
    b"AMQP\x01\x01\x00\x09": AMQP_0_9,
    b"AMQP\x01\x01\x08\x00": AMQP_0_8,  # sent by clients of 0-8
    b"AMQP\x01\x01\x09\x01": AMQP_0_8,  # in the text of its specification
}


def version_asked(header: bytes) -> Version | None:
    """Returns the version that the first eight bytes of a connection ask for; None: an unknown version."""
    return _HEADERS.get(header)
