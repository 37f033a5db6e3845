"""Last words: the client that reads again finds its own; what they take up has an end, and counts."""

from __future__ import annotations

import asyncio
import socket
import struct

import uvloop

from headway.core.log.lanes.pool import Pool
from headway.server.connections.linger import POOL_SHARE, SOCKETS_MAX, Lingering

RECORD = bytes(1_000_000)
WORD = b"\xe0\x02\x97\x00"


def pair() -> tuple[socket.socket, socket.socket]:
    """A connection over loopback: the broker's end, which takes little, and the client's."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        client.connect(server.getsockname())
        ours, _ = server.accept()
    ours.setblocking(False)
    client.setblocking(False)
    return ours, client


async def read_to_the_end(sock: socket.socket) -> bytes | None:
    """All there is; None: the connection was reset."""
    loop, found = asyncio.get_running_loop(), bytearray()
    try:
        while data := await loop.sock_recv(sock, 1 << 20):
            found += data
    except ConnectionResetError:
        return None
    finally:
        sock.close()
    return bytes(found)


def test_all_of_them_together_have_an_end_and_count_in_the_pool() -> None:
    async def story() -> None:
        pool = Pool("p", 64_000_000, 0)
        lingering = Lingering(asyncio.get_running_loop())
        clients = []
        for _ in range(40):
            ours, client = pair()
            lingering.close(ours, [memoryview(RECORD), b"", WORD], pool)
            clients.append(client)
            assert pool.memory_bytes <= pool.memory_limit * POOL_SHARE
        kept = pool.memory_bytes // (len(RECORD) + len(WORD))
        assert kept == 7, "as many as there is room for, and no fewer"
        heard = await asyncio.gather(*map(read_to_the_end, clients))
        assert heard[-kept:] == [RECORD + WORD] * kept, "those who were told last"
        assert all(found is None or not found.endswith(WORD) for found in heard[:-kept])
        await lingering.end(10.0)
        assert pool.memory_bytes == 0

    asyncio.run(story())


def test_nobody_is_too_large_to_be_told_if_there_is_nobody_else() -> None:
    async def story() -> None:
        pool = Pool("tiny", 100_000, 0)
        lingering = Lingering(asyncio.get_running_loop())
        ours, client = pair()
        lingering.close(ours, [RECORD, WORD], pool)
        assert await read_to_the_end(client) == RECORD + WORD
        await lingering.end(10.0)
        assert pool.memory_bytes == 0

    asyncio.run(story())


def test_small_words_end_by_their_number() -> None:
    async def story() -> None:
        pool = Pool("p", 64_000_000, 0)
        lingering = Lingering(asyncio.get_running_loop())
        clients = []
        for _ in range(SOCKETS_MAX + 3):
            ours, client = pair()
            lingering.close(ours, [WORD], pool)
            clients.append(client)
        assert pool.memory_bytes == SOCKETS_MAX * len(WORD)
        for client in clients:
            client.close()
        await lingering.end(10.0)
        assert pool.memory_bytes == 0

    asyncio.run(story())


def test_a_client_that_resets_behind_its_last_bytes_is_gone() -> None:
    """The broker's loop calls once for both, and the read brings only the bytes."""

    async def story() -> None:
        pool = Pool("p", 64_000_000, 0)
        lingering = Lingering(asyncio.get_running_loop())
        ours, client = pair()
        client.send(b"more")
        lingering.close(ours, [WORD], pool)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        (lingerer,) = lingering._open[pool]
        await asyncio.wait_for(lingerer.done.wait(), 10.0)
        assert pool.memory_bytes == 0

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(story())
