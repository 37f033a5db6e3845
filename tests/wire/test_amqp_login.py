"""User and password, in either of their two forms."""

from __future__ import annotations

import pytest
from pamqp import encode

from headway.core.base.errors import ProtocolError
from headway.wire.amqp.codes import ReplyCode
from headway.wire.amqp.replies import MECHANISMS, read_login
from headway.wire.common import Login

TABLE = encode.field_table({"LOGIN": "guest", "PASSWORD": "secret"})[4:]


@pytest.mark.parametrize(
    ("mechanism", "response", "login"),
    [
        ("PLAIN", "\0guest\0secret", Login("guest", b"secret")),
        ("PLAIN", "guest\0guest\0secret", Login("guest", b"secret")),
        ("PLAIN", "\0guest\0with\0nul", Login("guest", b"with\0nul")),
        ("PLAIN", b"\0\xc3\xa9\0\xff", Login("é", b"\xff")),
        ("PLAIN", "\0\0", Login("", b"")),
        ("AMQPLAIN", TABLE.decode(), Login("guest", b"secret")),
        ("AMQPLAIN", b"\x05LOGINS\0\0\0\x01u\x08PASSWORDS\0\0\0\x01\xff", Login("u", b"\xff")),
        ("EXTERNAL", "", None),
    ],
)
def test_logins(mechanism: str, response: str | bytes, login: Login | None) -> None:
    assert read_login(mechanism, response) == login
    assert (mechanism in MECHANISMS.split()) == (login is not None)


@pytest.mark.parametrize(
    ("mechanism", "response"),
    [
        ("PLAIN", ""), ("PLAIN", "guest"), ("PLAIN", "\0guest"), ("PLAIN", b"\0\xff\0x"),
        ("AMQPLAIN", ""), ("AMQPLAIN", TABLE[:-1]), ("AMQPLAIN", "\0guest\0secret"),
        ("AMQPLAIN", encode.field_table({"LOGIN": "guest"})[4:]),
        ("AMQPLAIN", encode.field_table({"LOGIN": 5, "PASSWORD": "secret"})[4:]),
    ],
)  # fmt: skip
def test_what_is_none(mechanism: str, response: str | bytes) -> None:
    with pytest.raises(ProtocolError) as error:
        read_login(mechanism, response)
    assert error.value.code == ReplyCode.SYNTAX_ERROR
