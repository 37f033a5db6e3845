"""Clients of STOMP that others wrote (stomp.py), and bare sockets where a client would not do what is wanted."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import stomp
from tests.interop.waiting import PATIENCE_S, until

CLIENTS = {"1.0": stomp.Connection10, "1.1": stomp.Connection11, "1.2": stomp.Connection12}


class Heard(stomp.ConnectionListener):
    """What a client was sent."""

    def __init__(self) -> None:
        self.messages: list[tuple[dict[str, str], str]] = []
        self.errors: list[tuple[dict[str, str], str]] = []
        self.receipts: list[str] = []
        self.gone = False

    def on_message(self, frame: Any) -> None:
        self.messages.append((frame.headers, frame.body))

    def on_error(self, frame: Any) -> None:
        self.errors.append((frame.headers, frame.body))

    def on_receipt(self, frame: Any) -> None:
        self.receipts.append(frame.headers["receipt-id"])

    def on_disconnected(self) -> None:
        self.gone = True


class Client:
    """One connection of stomp.py."""

    def __init__(self, port: int, version: str = "1.2", login: str = "", passcode: str = "", **more: Any) -> None:
        headers = more.pop("headers", {})
        self.version = version
        self.conn = CLIENTS[version]([("127.0.0.1", port)], **more)
        self.heard = Heard()
        self.conn.set_listener("heard", self.heard)
        self.conn.connect(login or None, passcode or None, wait=True, headers=headers)
        self._receipts = 0

    def told(self, do: Callable[[str], Any]) -> None:
        """Do something with a receipt, and wait for that."""
        self._receipts += 1
        name = f"r{self._receipts}"
        do(name)
        until(lambda: name in self.heard.receipts, PATIENCE_S, f"the receipt comes; errors: {self.heard.errors}")

    def subscribe(self, destination: str, id: str = "1", ack: str = "auto", **headers: str) -> None:
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        self.told(lambda name: self.conn.subscribe(destination, id=id, ack=ack, headers={"receipt": name, **more}))

    def unsubscribe(self, id: str, **headers: str) -> None:
        self.told(lambda name: self.conn.unsubscribe(id, headers={"receipt": name, **headers}))

    def send(self, destination: str, body: str | bytes, **headers: str) -> None:
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        self.told(lambda name: self.conn.send(destination, body, headers=more, receipt=name))

    def bodies(self, count: int) -> list[str]:
        """The bodies of so many messages, once they have come."""
        until(lambda: len(self.heard.messages) >= count, PATIENCE_S, f"{count} messages: {self.heard.errors}")
        return [body for _, body in self.heard.messages]

    def error(self) -> tuple[dict[str, str], str]:
        """The ERROR frame, after which the connection is gone."""
        until(lambda: self.heard.errors and self.heard.gone, PATIENCE_S, "ERROR, and the end")
        return self.heard.errors[0]

    def acknowledge(self, number: int, **headers: str) -> None:
        self._settle(self.conn.ack, number, headers)

    def refuse(self, number: int, **headers: str) -> None:
        self._settle(self.conn.nack, number, headers)

    def _settle(self, do: Callable[..., Any], number: int, headers: dict[str, str]) -> None:
        of = self.heard.messages[number][0]
        if self.version == "1.2":
            self.told(lambda name: do(of["ack"], receipt=name, **headers))
        elif self.version == "1.1":
            self.told(lambda name: do(of["message-id"], of["subscription"], receipt=name, **headers))
        else:
            self.told(lambda name: do(of["message-id"], receipt=name, **headers))

    def leave(self) -> None:
        if self.conn.is_connected():
            self.conn.disconnect()
        until(lambda: self.heard.gone, PATIENCE_S, "the connection ends")


class Raw:
    """A bare socket that has connected."""

    def __init__(self, port: int, connect: bytes = b"CONNECT\naccept-version:1.2\n\n\0") -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self.sock.sendall(connect)
        self.data = b""
        self.connected = self.frame()

    def frame(self) -> bytes:
        """The next frame, up to its NUL."""
        while b"\0" not in self.data:
            more = self.sock.recv(65536)
            if not more:
                return b""
            self.data += more
        frame, _, self.data = self.data.partition(b"\0")
        return frame.lstrip(b"\n")

    def close(self) -> None:
        self.sock.close()
