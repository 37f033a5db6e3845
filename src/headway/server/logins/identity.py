"""Identities: what a client says of itself, and who it is found to be."""

from __future__ import annotations

from typing import NamedTuple


class Attempt(NamedTuple):
    """A login that is tried."""

    name: str
    password: bytes
    address: str
    """Without a port."""
    client: str = ""
    """The client id; empty where the protocol has none."""
    listener: str = ""
    """Empty at the admin API."""


class Identity(NamedTuple):
    """A user, as was checked."""

    user: str
    groups: tuple[str, ...] = ()
    """Groups besides those of the config."""
    expires_s: float | None = None
    """When it stops being that (epoch seconds); None: never."""


class Refusal(NamedTuple):
    """A login that failed, and why, in the words that the client is told."""

    text: str
