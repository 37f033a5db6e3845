"""Helpers of the tests of the rows."""

from __future__ import annotations

from tests.core.stage import Client

KB, MB = 1000, 1_000_000
QUOTA_EXCEEDED = 0x97


def assert_told_why(client: Client, *words: str) -> None:
    """Its connection was ended by DISCONNECT 0x97 with a sentence that has these words."""
    assert not client.connected
    assert client.goodbye is not None, f"{client.name} was not told"
    assert client.goodbye.code == QUOTA_EXCEEDED
    assert client.goodbye.reason is not None
    for word in words:
        assert word in client.goodbye.reason, client.goodbye.reason
