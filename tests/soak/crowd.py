"""A crowd: many clients of STOMP in a process of their own, which are gone in one moment when it is killed."""

from __future__ import annotations

import resource
import socket
import subprocess
import sys
import time
from typing import Self

FILES_BESIDE = 200
A_SECOND = 1000
"""How many come in a second."""


class Crowd:
    """``there`` once all have come; gone at the end of the context."""

    def __init__(self, port: int, count: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.soak.crowd", str(port), str(count)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )  # fmt: skip

    def wait(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"there\n"

    def vanish(self) -> None:
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.vanish()


def come(port: int, count: int) -> list[socket.socket]:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, count + FILES_BESIDE), most))
    socks: list[socket.socket] = []
    began = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, began + number / A_SECOND - time.monotonic()))  # it is the end that is to be trouble
        sock = socket.create_connection(("127.0.0.1", port))
        topics = f"SUBSCRIBE\nid:0\ndestination:/topic/crowd.{number % 50}\nreceipt:r\n\n\0"
        sock.sendall(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0" + topics.encode())
        socks.append(sock)
    for sock in socks:
        heard = b""
        while b"RECEIPT" not in heard:
            came = sock.recv(4096)
            assert came, "the broker ended the connection"
            heard += came
    return socks


if __name__ == "__main__":
    kept = come(int(sys.argv[1]), int(sys.argv[2]))
    print("there", flush=True)
    sys.stdin.read()
