"""Passwords: hashes, checks, and hashes that cannot be."""

from __future__ import annotations

import base64
import hashlib

import pytest

from headway.core.base.errors import ConfigError
from headway.server.config.auth import Users, check_hash, hash_password, verify_password

# ln=10 keeps the tests quick.
CHEAP = "$scrypt$ln=10,r=8,p=1$c2FsdHNhbHRzYWx0c2FsdA$"


def cheap_hash(password: bytes) -> str:
    digest = hashlib.scrypt(password, salt=b"saltsaltsaltsalt", n=1024, r=8, p=1, dklen=32)
    return CHEAP + base64.b64encode(digest).decode().rstrip("=")


def test_a_hash_is_of_its_password_only() -> None:
    hashed = hash_password("correct horse")
    assert hashed.startswith("$scrypt$ln=15,r=8,p=1$")
    assert verify_password("correct horse", check_hash(hashed))
    assert verify_password(b"correct horse", hashed)
    assert not verify_password("correct horse ", hashed)
    assert not verify_password("", hashed)


def test_two_hashes_of_one_password_differ() -> None:
    assert hash_password("x") != hash_password("x")


def test_hashes_made_elsewhere_with_other_costs_are_taken() -> None:
    """A test vector of RFC 7914, section 12."""
    digest = bytes.fromhex(
        "7023bdcb3afd7348461c06cd81fd38ebfda8fbba904f8e3ea9b543f6545da1f2"
        "d5432955613f0fcf62d49705242a9af9e61e85dc0d651e40dfcf017b45575887"
    )
    salt, hashed = (base64.b64encode(raw).decode().rstrip("=") for raw in (b"SodiumChloride", digest))
    phc = f"$scrypt$ln=14,r=8,p=1${salt}${hashed}"
    assert verify_password("pleaseletmein", check_hash(phc))
    assert not verify_password("pleaseletmeout", phc)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("secret", "is not a hash"),
        ("", "is not a hash"),
        (7, "expected a password's hash"),
        ("$scrypt$ln=15,r=8,p=1$c2FsdHNhbHQ", "is not a scrypt hash"),
        (CHEAP + "A", "damaged base64"),
        (CHEAP + "AAAA", "cut short"),
        ("$scrypt$ln=9,r=8,p=1$c2FsdHNhbHQ$" + "A" * 43, "costs out of range"),
        ("$scrypt$ln=15,r=0,p=1$c2FsdHNhbHQ$" + "A" * 43, "costs out of range"),
        ("$scrypt$ln=16,r=1,p=1$c2FsdHNhbHQ$" + "A" * 43, "costs that scrypt does not have"),
        ("$scrypt$ln=24,r=8,p=1$c2FsdHNhbHQ$" + "A" * 43, "too long to check"),
        ("$scrypt$ln=15,r=8,p=99$c2FsdHNhbHQ$" + "A" * 43, "too long to check"),
    ],
)
def test_what_is_no_hash_is_refused_and_never_shown(bad: object, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        check_hash(bad)
    assert not bad or str(bad) not in str(caught.value)


def test_users() -> None:
    users = Users({"alice": cheap_hash(b"a"), "bob": cheap_hash(b"b")})
    assert len(users) == 2
    assert not users.remembers("alice", b"a")
    assert users.check("alice", b"a")
    assert users.remembers("alice", b"a")
    assert not users.remembers("alice", b"b")
    assert not users.remembers("bob", b"a")
    assert not users.check("alice", b"b")
    assert not users.check("bob", b"a")
    assert not users.check("nobody", b"a")
    assert users.remembers("alice", b"a")
    assert not Users({}).check("alice", b"a")
