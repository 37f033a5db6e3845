"""Answers of the broker's HTTP server, read back in any pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.embed.asgi import Answer

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(("method", "data", "status", "body", "whole"), [
    ("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: y\r\n\r\nhello", 200, b"hello", True),
    ("GET", CHUNKED + b"5\r\nhello\r\n1;x=y\r\n!\r\n0\r\n\r\n", 200, b"hello!", True),
    ("GET", CHUNKED + b"5\r\nhello\r\n1", 200, b"hello", False),
    ("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello", 200, b"hello", False),
    ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", 200, b"", True),
    ("GET", b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", True),
    ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", 304, b"", True),
    ("GET", b"HTTP/1.1 200 OK\r\nConte", None, b"", False),
])  # fmt: skip
@given(piece=st.integers(1, 60))
def test_an_answer_is_read_in_any_pieces(
    method: str, data: bytes, status: int | None, body: bytes, whole: bool, piece: int
) -> None:
    answer, messages = Answer(method), []
    for start in range(0, len(data), piece):
        messages += answer.feed(data[start : start + piece])
    assert answer.whole is whole
    assert [one["status"] for one in messages[:1]] == ([] if status is None else [status])
    assert b"".join(one["body"] for one in messages[1:]) == body
