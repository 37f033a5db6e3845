"""A connection that breaks in the middle of a send: what was taken before counts as sent, as the peer may have read it.

Otherwise a queue's record that a consumer has is given to another one, as if nobody had had it."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.server.test_tls_stream import Client, pair, told
from tests.server.test_websocket_deflate import TEXT_BYTES, opened, plain, shared

from headway.server.transport import Buffer, PlainStream, TlsStream
from headway.server.transport.byte_stream import ByteStream
from headway.server.websocket.deflate import PIECE_BYTES

DATA = os.urandom(400_000)


class Breaking:
    """A socket that is reset after so many sends."""

    def __init__(self, sock: socket.socket, sends: int) -> None:
        self._sock = sock
        self.sends = sends

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def send(self, *told: Any) -> int:
        return self._sent(self._sock.send, *told)

    def sendmsg(self, *told: Any) -> int:
        return self._sent(self._sock.sendmsg, *told)

    def _sent(self, how: Callable[..., int], *told: Any) -> int:
        if not self.sends:
            raise ConnectionResetError
        self.sends -= 1
        return how(*told)


def in_pieces(stream: ByteStream, data: Buffer) -> int:
    return stream.send_pieces(data, 1024)


def whole(stream: ByteStream, data: Buffer) -> int:
    return stream.send([data])


def test_a_plain_stream() -> None:
    with pair() as (ours, theirs):
        stream = PlainStream(Breaking(ours, 2))  # type: ignore[arg-type]
        assert stream.send_pieces(DATA, 1024) == 2048
        assert theirs.recv(4096) == DATA[:2048]
        for send in (in_pieces, whole):
            with pytest.raises(ConnectionResetError):
                send(stream, DATA)


@pytest.mark.parametrize("send", [in_pieces, whole])
def test_a_tls_stream(send: Callable[[ByteStream, Buffer], int], certificates: Path) -> None:
    async def story(stream: TlsStream, client: Client) -> None:
        stream.sock = Breaking(stream.sock, 1 if send is whole else 5)  # type: ignore[assignment]
        taken = send(stream, DATA)
        assert 0 < taken < len(DATA)
        assert client.read() == DATA[: len(client.found)]
        assert 0 < len(client.found) <= taken
        for again in (in_pieces, whole):
            with pytest.raises(ConnectionError):
                again(stream, DATA)

    told(story, certificates)


@pytest.mark.parametrize("piece_bytes", [0, 1024])
def test_a_compressed_websocket(piece_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stream, kernel, _ = opened(shared()[0])
    lane, sends, send = TEXT_BYTES * 5000, [1, 1], kernel.send

    def breaks(views: list[Buffer]) -> int:
        if not sends:
            raise ConnectionResetError
        sends.pop()
        return send(views)

    monkeypatch.setattr(kernel, "send", breaks)
    taken = stream.send_pieces(lane, piece_bytes) if piece_bytes else stream.send([lane])
    assert taken == 2 * PIECE_BYTES
    assert plain(kernel.wire) == lane[:taken]
    with suppress(BlockingIOError), pytest.raises(ConnectionResetError):
        stream.send([lane])
