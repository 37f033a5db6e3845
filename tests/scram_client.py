"""SCRAM-SHA-256 as a client speaks it, written from RFC 5802 alone."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode


class ScramClient:
    def __init__(self, name: str, password: str, nonce: str = "fyko+d2lbbFgONRv9qkxdawL", header: str = "n,,") -> None:
        self._password, self._header = password, header
        self._bare = f"n={name.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
        self._signature = b""

    def first(self) -> bytes:
        return (self._header + self._bare).encode()

    def final(self, challenge: bytes) -> bytes:
        said = dict(part.split("=", 1) for part in challenge.decode().split(","))
        salted = hashlib.pbkdf2_hmac("sha256", self._password.encode(), b64decode(said["s"]), int(said["i"]))
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        without = f"c={b64encode(self._header.encode()).decode()},r={said['r']}"
        signed = f"{self._bare},{challenge.decode()},{without}".encode()
        signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._signature = hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), signed, "sha256")
        return f"{without},p={b64encode(proof).decode()}".encode()

    def knows(self, answer: bytes) -> bool:
        """Whether the server has shown that it knows the password, too."""
        return answer == b"v=" + b64encode(self._signature)
