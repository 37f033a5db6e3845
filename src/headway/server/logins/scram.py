"""SCRAM-SHA-256 (RFC 5802, 7677), the server's side: the client shows that it knows the password, and the server that
it knows it, too. The password itself is never sent, and nothing here is slow.

Rules:
- Channel binding is not offered: a client that asks for it is refused, one that only could is not.
- A name that is no user, or whose password is not kept for SCRAM, gets an answer like others
  (config/auth/users.py), and fails in the end.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import re
import secrets
from base64 import b64decode, b64encode

from headway.server.config import ScramKeys, Users, saslprep

MECHANISM = "SCRAM-SHA-256"
NONCE_BYTES = 18
NONCE_CHARS_MAX = 1024
NAME_CHARS_MAX = 1024
_FIRST = re.compile(r"([ny]|p=[A-Za-z0-9.-]+),(?:a=([^,]*))?,((m=[^,]*,)?n=([^,]*),r=([!-+\--~]+)(?:,.*)?)", re.DOTALL)
_FINAL = re.compile(r"(c=([A-Za-z0-9+/=]+),r=([!-+\--~]+)(?:,[^,]*)*),p=([A-Za-z0-9+/=]+)", re.DOTALL)


class ScramError(Exception):
    """The conversation cannot go on, for the reason that the text tells."""


class Scram:
    """One conversation: ``first``, then ``final``."""

    def __init__(self, users: Users, nonce: str = "") -> None:
        """``nonce``: the server's part; empty: a random one."""
        self.name = ""
        """The user's name, once the client has said it."""
        self.users = users
        self._nonce = nonce or b64encode(secrets.token_bytes(NONCE_BYTES)).decode()
        self._header = ""
        self._said = ""
        """The messages without their headers and proofs: what both sides sign."""
        self._keys: ScramKeys | None = None

    def first(self, message: bytes) -> bytes:
        """Reads the client's first message. Returns the server's. Raises ScramError."""
        match = _FIRST.fullmatch(_text(message))
        if match is None:
            raise ScramError("the first message of SCRAM cannot be read")
        binding, authorization, bare, extension, name, nonce = match.groups()
        if binding.startswith("p="):
            raise ScramError("channel binding is not offered")
        if extension is not None:
            raise ScramError("an extension of SCRAM is demanded that is not known here")
        self.name = _name(name)
        if authorization and _name(authorization) != self.name:
            raise ScramError("nobody may act as somebody else")
        if len(nonce) > NONCE_CHARS_MAX or len(name) > NAME_CHARS_MAX:
            raise ScramError("the first message of SCRAM is too long")
        self._header = f"{binding},{f'a={authorization}' if authorization is not None else ''},"
        self._nonce = nonce + self._nonce
        if self.name not in self.users:
            self.name = saslprep(self.name)
        self._keys = self.users.scram_keys(self.name)
        salt, iterations = self.users.scram_terms(self.name)
        answer = f"r={self._nonce},s={b64encode(salt).decode()},i={iterations}"
        self._said = f"{bare},{answer}"
        return answer.encode()

    def final(self, message: bytes) -> bytes:
        """Reads the client's last message. Returns the server's. Raises ScramError if the client does not know the
        password."""
        match = _FINAL.fullmatch(_text(message))
        if match is None or not self._said:
            raise ScramError("the last message of SCRAM cannot be read")
        said, binding, nonce, proof = match.groups()
        if _decoded(binding) != self._header.encode() or not hmac.compare_digest(nonce, self._nonce):
            raise ScramError("the last message of SCRAM does not fit the first")
        signed = f"{self._said},{said}".encode()
        keys = self._keys
        if keys is None or not _proves(_decoded(proof), signed, keys.stored_key):
            raise ScramError("wrong user name or password")
        self._said = ""
        return b"v=" + b64encode(hmac.digest(keys.server_key, signed, "sha256"))


def _proves(proof: bytes, signed: bytes, stored_key: bytes) -> bool:
    """Tells whether the proof is by the key of which the stored key is the hash."""
    signature = hmac.digest(stored_key, signed, "sha256")
    if len(proof) != len(signature):
        return False
    client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
    return hmac.compare_digest(hashlib.sha256(client_key).digest(), stored_key)


def _name(text: str) -> str:
    """Returns a name as it is without SCRAM's escapes."""
    if re.search("=(?!2C|3D)", text):
        raise ScramError("a name in SCRAM's first message has a = that stands for nothing")
    return text.replace("=2C", ",").replace("=3D", "=")


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ScramError("a message of SCRAM is not UTF-8") from None


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except binascii.Error:
        raise ScramError("a message of SCRAM has damaged base64") from None
