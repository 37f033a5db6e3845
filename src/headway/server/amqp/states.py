"""States of an AMQP connection's handshake and of its channels."""

from __future__ import annotations

from enum import StrEnum


class Expected(StrEnum):
    """The next thing that the handshake expects, as errors name it."""

    HEADER = "the protocol header"
    START_OK = "Connection.StartOk"
    SECURE_OK = "Connection.SecureOk"
    TUNE_OK = "Connection.TuneOk"
    OPEN = "Connection.Open"


HANDSHAKE_MOVES = {
    Expected.HEADER: {Expected.START_OK},
    Expected.START_OK: {Expected.SECURE_OK, Expected.TUNE_OK},
    Expected.SECURE_OK: {Expected.SECURE_OK, Expected.TUNE_OK},
    Expected.TUNE_OK: {Expected.OPEN},
    Expected.OPEN: set[Expected](),
}


class ChannelState(StrEnum):
    OPEN = "open"
    PAUSED = "paused"
    """The client wants nothing delivered for now (channel.flow)."""
    COMMITTING = "closed while committing"
    """The channel is closed, and the commit that was begun before goes on."""
    CLOSED = "closed"


OPEN, PAUSED, COMMITTING, CLOSED = ChannelState
CHANNEL_MOVES = {
    OPEN: {PAUSED, COMMITTING, CLOSED},
    PAUSED: {OPEN, COMMITTING, CLOSED},
    COMMITTING: {CLOSED},
    CLOSED: set[ChannelState](),
}


class PublishMode(StrEnum):
    """How publishes are answered on a channel; a client chooses once."""

    PLAIN = "plain"
    CONFIRMS = "confirms"
    TRANSACTIONS = "transactions"


PLAIN, CONFIRMS, TRANSACTIONS = PublishMode
MODE_MOVES = {
    PLAIN: {CONFIRMS, TRANSACTIONS},
    CONFIRMS: {CONFIRMS},
    TRANSACTIONS: {TRANSACTIONS},
}
