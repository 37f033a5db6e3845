"""A codec's description, for code that knows no protocol: each folder here has a ``codec.py`` with its ``CODEC``."""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any, NamedTuple

from headway.core.message import Dialect, Properties
from headway.wire.common import CommonProperties
from headway.wire.dialect import Numbering


class QueueForm(NamedTuple):
    """The form in which queues keep records, and the journal their arguments, whatever protocol their clients speak.
    Consumers of topics may read them in it, too."""

    dialect: Dialect
    topics: Callable[[bool], Dialect]
    """Returns the dialect for consumers of topics. True: each record has its offset as a header."""
    lead_bytes: Callable[[bytes, int], int]
    """Returns the size of the *lead* of the record that begins at this position: all that comes before the body, with
    the body's size in it. ``dialect.decode`` of a lead alone is the record without its payload."""
    write_table: Callable[[dict[str, Any]], bytes]
    """Writes the arguments of exchanges and bindings."""
    read_table: Callable[[bytes], dict[str, Any]]
    """Reads arguments that ``write_table`` wrote."""
    read_headers: Callable[[bytes], dict[str, Any]]
    """Reads the headers that exchanges route by from a record's native properties."""
    without_headers: Callable[[bytes, Set[str]], bytes]
    """Returns native properties without some of their headers."""
    write_common: Callable[[CommonProperties], Properties]
    """Makes the properties of a message of another protocol. They say the same in the queue's form and in MQTT's."""
    read_common: Callable[[Properties], CommonProperties]
    """Reads any properties, whatever protocol they came by. Equal ones are read once."""
    find_bytes: Callable[[bytes, str], bytes | None]
    """Returns the value of a header of bytes, from native properties or the lead of a record, without reading the rest.
    Whoever asks checks what he gets."""
    address: Callable[[bytes], tuple[str, str]]
    """Returns exchange and topic of the record with this lead."""
    native_at: Callable[[bytes, int], int]
    """Returns where the native properties begin, which end the lead of the record that begins at this position."""
    numbering: Callable[[bytes], Numbering | None]
    """Returns the numbering of messages with native properties like these; None: they have no number."""


class Codec(NamedTuple):
    port: int
    """Default port."""
    tls_port: int
    """Default port with TLS."""
    packet_bytes_max: int
    """Default limit of a packet; of a message, where a message may have several packets."""
    in_flight_max: int
    """Default window of a client that does not set one."""
    opens: Callable[[bytes], bool | None]
    """Tells whether the first bytes of a connection are this protocol's; None: too few have come to tell."""
    scheme: str = ""
    """The scheme of another protocol, at whose listeners this one is spoken, too; empty: it has listeners of its own,
    of its own name."""
    dialects: tuple[type[Dialect], ...] = ()
    """Dialects of subscriptions that the journal keeps: msgspec structs, each with a tag of its own as ``dialect``. One
    dialect may lack the tag, as the first one does."""
    subprotocols: tuple[str, ...] = ()
    """Names of the protocol in a WebSocket's handshake; none: it is not spoken there."""
    filler: bytes = b""
    """A packet of the broker that says nothing. It completes a WebSocket's frame."""
    texts: bool = False
    """Whether clients may send it in text frames of a WebSocket, too."""
    queues: QueueForm | None = None
    """Set by one protocol."""
