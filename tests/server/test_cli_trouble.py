"""What headway trouble refuses, and explains, without a broker."""

from __future__ import annotations

import socket

import pytest
from tests.server.canned import Ran

from headway.trouble.kinds import KINDS


def test_every_kind_is_explained() -> None:
    out = Ran("trouble", "--list").out
    assert [line.split()[0] for line in out.splitlines()] == list(KINDS)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "which broker?"),
        (["http://127.0.0.1"], "is not the address of a broker"),
        (["mqtt://u:secret@127.0.0.1:0"], "'127.0.0.1:0' is not the address"),
        (["mqtt://192.0.2.1"], "--yes-trouble-this-broker"),
        (["mqtt://127.0.0.1?ca=x.pem"], "a CA is for"),
        (["mqtts://127.0.0.1?ca=/none.pem"], "/none.pem cannot be used"),
        (["mqtt://127.0.0.1", "--kinds", "stuk"], "did you mean stuck?"),
        (["mqtt://127.0.0.1", "--kinds", "stuck=0"], "from 1 to 5,000"),
        (["mqtt://127.0.0.1", "--kinds", "stuck=x"], "--kinds stuck"),
        (["mqtt://127.0.0.1", "--kinds", "no-acks", "--qos", "0"], "needs --qos 1"),
        (["mqtt://127.0.0.1", "--kinds", "bursty", "--topic", "a/#"], "nothing is published"),
        (["mqtt://127.0.0.1", "--size", "10B"], "--size 10B: from 30 B"),
        (["mqtt://127.0.0.1", "--rate", "0"], "--rate 0"),
        (["mqtt://127.0.0.1", "--for", "soon"], "--for"),
        (["mqtt://127.0.0.1", "--prefix", "a/#"], "without wildcards"),
    ],
)  # fmt: skip
def test_mistakes_are_told_before_anything_is_done(arguments: list[str], said: str) -> None:
    ran = Ran("trouble", *arguments)
    assert ran.code == 2
    assert said in ran.err
    assert "secret" not in ran.err


def test_a_broker_that_is_not_there() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        ran = Ran("trouble", f"mqtt://127.0.0.1:{taken.getsockname()[1]}")
    assert ran.code == 2
    assert "connection refused" in ran.err
