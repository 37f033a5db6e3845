"""SCRAM-SHA-256: the RFCs' own examples, hashes, and conversations that go wrong."""

from __future__ import annotations

import subprocess
import sys
from base64 import b64decode
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.scram_client import ScramClient
from tests.server.test_hostile import Lines

from headway.core.base.errors import ConfigError
from headway.server.config.auth import Users, check_hash, hash_password, saslprep, verify_password
from headway.server.config.auth.saslprep import CHARS_MAX
from headway.server.config.auth.scram import keys_for, text_of
from headway.server.logins.scram import Scram, ScramError

SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
PENCIL = text_of(keys_for(b"pencil", SALT, 4096))
USERS = Users({"user": PENCIL, "a,b=c": PENCIL, "old": "$7$101$WnM+AWIfMRJPoMMW$" + "A" * 86 + "=="})
POSTGRES = (
    "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:"
    "wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
)
"""RFC 7677's password with the keys that other implementations have of it, in PostgreSQL's form."""


def test_the_conversation_of_rfc_7677() -> None:
    scram = Scram(USERS, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    assert scram.first(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert scram.name == "user"
    assert scram.final(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    ) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="  # fmt: skip


def test_the_hash_is_the_one_that_postgresql_keeps() -> None:
    assert PENCIL == POSTGRES
    assert verify_password("pencil", check_hash(POSTGRES))
    assert not verify_password("pencils", POSTGRES)


def test_a_hash_made_here_serves_both_kinds_of_login() -> None:
    hashed = hash_password("correct horse", scram_able=True)
    assert verify_password("correct horse", check_hash(hashed))
    users = Users({"ann": hashed})
    assert users.check("ann", b"correct horse")
    client, scram = ScramClient("ann", "correct horse"), Scram(users)
    assert client.knows(scram.final(client.final(scram.first(client.first()))))
    assert users.by_scram
    assert not Users({"ann": hash_password("x")}).by_scram


@pytest.mark.parametrize("name", ["user", "a,b=c"])
def test_who_knows_the_password_is_let_in(name: str) -> None:
    for header in ("n,,", "y,,", f"n,a={name.replace('=', '=3D').replace(',', '=2C')},"):
        client, scram = ScramClient(name, "pencil", header=header), Scram(USERS)
        assert client.knows(scram.final(client.final(scram.first(client.first()))))
        assert scram.name == name


@pytest.mark.parametrize(("name", "password"), [("user", "pencils"), ("user", ""), ("nobody", "pencil"), ("old", "x")])
def test_nobody_else_is_and_all_are_answered_alike(name: str, password: str) -> None:
    client, scram = ScramClient(name, password), Scram(USERS)
    first = scram.first(client.first())
    assert Scram(USERS).first(client.first()).split(b",")[1:] == first.split(b",")[1:]  # with the same salt again
    with pytest.raises(ScramError, match="wrong user name or password"):
        scram.final(client.final(first))


STRONG = {f"s{number}": text_of(keys_for(b"x", bytes([number] * 24), 20_000)) for number in range(20)}
WEAK = {f"w{number}": text_of(keys_for(b"x", bytes([number] * 8), 5_000)) for number in range(20)}
NOBODIES = [f"nobody {number}" for number in range(400)]


def told(users: Users, name: str) -> tuple[int, int, bytes]:
    """The iterations, and the salt's length and bytes, that a name is answered with."""
    said = dict(part.split("=", 1) for part in Scram(users).first(ScramClient(name, "x").first()).decode().split(","))
    salt = b64decode(said["s"])
    return int(said["i"]), len(salt), salt


def test_names_that_are_no_users_are_answered_as_users_are() -> None:
    assert {told(USERS, name)[:2] for name in ("user", "nobody", "old", "somebody")} == {(4096, 16)}
    of_both = Users(STRONG | WEAK)
    kinds = Counter(told(of_both, name)[:2] for name in NOBODIES)
    assert set(kinds) == {(20_000, 24), (5_000, 8)}
    assert min(kinds.values()) > len(NOBODIES) / 8
    assert len({told(of_both, name) for name in NOBODIES}) == len(NOBODIES), "each has a salt of its own"


def test_the_answer_to_a_name_that_is_no_user_outlives_the_process_and_changes_with_some_password() -> None:
    before = {name: told(Users(STRONG), name) for name in NOBODIES}
    script = (
        "from tests.server.test_scram import *\n"
        "print([told(Users(STRONG), name) for name in NOBODIES[:3]])"
    )
    elsewhere = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert elsewhere.stdout == f"{[before[name] for name in NOBODIES[:3]]}\n"
    changed = Users(STRONG | {"s3": text_of(keys_for(b"y", bytes(24), 20_000))})
    different = sum(told(changed, name) != before[name] for name in NOBODIES)
    assert 0 < different < len(NOBODIES) / 2, "those who take after this user, and after its neighbours"


@pytest.mark.parametrize(
    ("first", "says"),
    [
        (b"", "cannot be read"), (b"n,,n=user", "cannot be read"), (b"n,,r=x,n=user", "cannot be read"),
        (b"x,,n=user,r=x", "cannot be read"), (b"p=tls-exporter,,n=user,r=x", "channel binding is not offered"),
        (b"n,,m=x,n=user,r=x", "an extension"), (b"n,a=other,n=user,r=x", "nobody may act as somebody else"),
        (b"n,,n=us=er,r=x", "stands for nothing"), (b"n,,n=user,r=" + b"x" * 2000, "too long"),
        (b"n,,n=\xff,r=x", "not UTF-8"),
    ],
)  # fmt: skip
def test_first_messages_that_cannot_be(first: bytes, says: str) -> None:
    with pytest.raises(ScramError, match=says):
        Scram(USERS).first(first)


def test_last_messages_that_cannot_be() -> None:
    client = ScramClient("user", "pencil")
    for change, says in (
        (lambda said: said.replace(b"c=biws", b"c=eSws"), "does not fit"),
        (lambda said: said.replace(b"r=fyko", b"r=gyko"), "does not fit"),
        (lambda said: said.partition(b",p=")[0], "cannot be read"),
        (lambda said: said[:-8] + b",p=====", "cannot be read|base64"),
        (lambda said: said[:-4], "base64|wrong user name"),
        (lambda said: b"\xff" + said, "not UTF-8"),
    ):
        scram = Scram(USERS)
        final = client.final(scram.first(client.first()))
        with pytest.raises(ScramError, match=says):
            scram.final(change(final))
    with pytest.raises(ScramError, match="cannot be read"):
        Scram(USERS).final(client.final(Scram(USERS).first(client.first())))  # of another conversation


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_any_bytes_are_an_answer_or_a_scram_error(first: bytes, final: bytes) -> None:
    scram = Scram(USERS)
    try:
        scram.first(first)
        scram.final(final)
    except ScramError:
        return
    raise AssertionError("nobody knows the password")


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("SCRAM-SHA-256$4096:x", "is not a whole SCRAM-SHA-256 hash"), (POSTGRES.replace("4096", "1000"), "iterations"),
        (POSTGRES.replace("4096", "9999999"), "iterations"), (POSTGRES[:-6], "cut short|base64"),
    ],
)  # fmt: skip
def test_hashes_that_cannot_be(bad: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        check_hash(bad)


@pytest.mark.parametrize(
    ("text", "prepared"),
    [
        ("I\u00adX", "IX"), ("user", "user"), ("USER", "USER"), ("\u00aa", "a"), ("\u2168", "IX"),
        ("\u0007", "\u0007"), ("\u0627\u0031", "\u0627\u0031"), ("a\u00a0b", "a b"),
    ],
)  # fmt: skip
def test_the_examples_of_rfc_4013(text: str, prepared: str) -> None:
    """The last but one and the one before it are prohibited there; they stay as they are, as in PostgreSQL."""
    assert saslprep(text) == prepared


@pytest.mark.parametrize("one", ["\u00e9", "\ufdfa", "\u0344", "\u0301\u0316", "\u0627"])
@pytest.mark.parametrize("count", [128, 500, 16_000])
def test_a_long_name_is_little_work_before_the_login(one: str, count: int) -> None:
    """It is prepared on the loop, and a password with the interpreter's lock held."""
    lines = Lines()
    with lines.counted():
        saslprep(one * count)
    assert lines.count < 5_000
    if len(one * count) > CHARS_MAX:
        assert saslprep(one * count) == one * count
