"""Numbers of OpenWire: types of commands and of objects, types of acknowledgements, versions."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

VERSION_MIN = 9
VERSION_MAX = 12
MAGIC = b"ActiveMQ"


class Type(IntEnum):
    """The type byte of a frame, or of an object in one."""

    WIRE_FORMAT_INFO = 1
    BROKER_INFO = 2
    CONNECTION_INFO = 3
    SESSION_INFO = 4
    CONSUMER_INFO = 5
    PRODUCER_INFO = 6
    TRANSACTION_INFO = 7
    DESTINATION_INFO = 8
    REMOVE_SUBSCRIPTION_INFO = 9
    KEEP_ALIVE_INFO = 10
    SHUTDOWN_INFO = 11
    REMOVE_INFO = 12
    CONTROL_COMMAND = 14
    FLUSH_COMMAND = 15
    CONNECTION_ERROR = 16
    CONSUMER_CONTROL = 17
    CONNECTION_CONTROL = 18
    PRODUCER_ACK = 19
    MESSAGE_PULL = 20
    MESSAGE_DISPATCH = 21
    MESSAGE_ACK = 22
    MESSAGE = 23
    BYTES_MESSAGE = 24
    MAP_MESSAGE = 25
    OBJECT_MESSAGE = 26
    STREAM_MESSAGE = 27
    TEXT_MESSAGE = 28
    BLOB_MESSAGE = 29
    RESPONSE = 30
    EXCEPTION_RESPONSE = 31
    DATA_ARRAY_RESPONSE = 33
    INTEGER_RESPONSE = 34
    QUEUE = 100
    TOPIC = 101
    TEMP_QUEUE = 102
    TEMP_TOPIC = 103
    MESSAGE_ID = 110
    LOCAL_TRANSACTION_ID = 111
    XA_TRANSACTION_ID = 112
    CONNECTION_ID = 120
    SESSION_ID = 121
    CONSUMER_ID = 122
    PRODUCER_ID = 123
    BROKER_ID = 124


class AckType(IntEnum):
    DELIVERED = 0
    """The client's application has it, and may still give it back: only credit comes back."""
    POISON = 1
    STANDARD = 2
    REDELIVERED = 3
    """The client hands it out to its application once more."""
    INDIVIDUAL = 4
    UNMATCHED = 5
    EXPIRED = 6


class TransactionStep(IntEnum):
    BEGIN = 0
    PREPARE = 1
    COMMIT = 2
    """In one phase."""
    COMMIT_PREPARED = 3
    ROLLBACK = 4
    RECOVER = 5
    FORGET = 6
    END = 7


class Form(NamedTuple):
    """The form of a connection's bytes, as both sides agreed on it."""

    version: int = VERSION_MAX
    cached: bool = False
    """Objects that come again and again are written once, and then by their numbers (marshalling.py)."""
