"""The password file: hashes that mosquitto_passwd made, and what is wrong in a bad one."""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

from headway.core.base.errors import ConfigError
from headway.server.config.auth import Users, check_hash, read_password_file, verify_password
from headway.server.config.reading import load_settings, parse_settings
from headway.store.toml import BadConfig

ALICE = (
    "$7$101$WnM+AWIfMRJPoMMW$"
    "eJXN3KhVJgjFb+uifGKtqhOkYHLhpZaUY+KazoklEzFSdWuVdIm7XMUZ5lwkItWjV8EfYeLElq8G9Oe0j+xvNw=="
)
"""Of "wonder", made by mosquitto_passwd 2.0.11."""
BOB = (
    "$6$1GMqrWs1ORR7b8E6$"
    "oTlGhnZg/iXHYKcyoteHvQXAWaWcc+VTzfzPgIEYvUWB78gQMdakhmjVetaTdpl8eZ+3FyPubvc2onMSbleKTg=="
)
"""Of "builder", made by mosquitto_passwd 2.0.11 with -H sha512."""


def written(folder: Path, text: str) -> Path:
    path = folder / "passwd"
    path.write_text(text)
    return path


def test_hashes_that_mosquitto_made(tmp_path: Path) -> None:
    users = Users(read_password_file(written(tmp_path, f"# ours\n\nalice:{ALICE}\r\nbob:{BOB}\n")))
    assert len(users) == 2
    assert users.check("alice", b"wonder")
    assert users.check("bob", b"builder")
    for name, wrong in (("alice", b"builder"), ("bob", b"wonder"), ("alice", b""), ("bob", b""), ("bob", b"builder ")):
        assert not users.check(name, wrong)


@pytest.mark.skipif(shutil.which("mosquitto_passwd") is None, reason="mosquitto_passwd is not installed")
@pytest.mark.parametrize("kind", ["sha512-pbkdf2", "sha512"])
def test_hashes_that_mosquitto_passwd_makes_now(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "passwd"
    for number, name in enumerate(("ann", "ünal", "a b")):
        first = ["-c"] if not number else []
        subprocess.run(["mosquitto_passwd", *first, "-H", kind, "-b", path, name, f"{name}'s: sécret"], check=True)
    users = Users(read_password_file(path))
    for name in ("ann", "ünal", "a b"):
        assert users.check(name, f"{name}'s: sécret".encode())
        assert not users.check(name, f"{name}'s: sécret ".encode())


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("carol", "is not NAME:HASH, as mosquitto_passwd writes it"),
        (":x", "has no user's name before the colon"),
        ("a\tb:x", "has no user's name before the colon"),
        ("carol:", "carol has no hash"),
        ("carol:secret", "the password of carol is not a hash: .*; mosquitto_passwd -U hashes a whole file"),
        ("carol:$5$a$b", "the password of carol is not a hash"),
        ("carol:$7$101$abc", r"is not a whole \$7\$ hash"),
        ("carol:$6$abc", r"is not a whole \$6\$ hash"),
        ("carol:" + ALICE[:-20], "was cut short"),
        ("carol:" + BOB[:-4] + "A", "damaged base64"),
        ("carol:" + ALICE.replace("$101$", "$9999999$"), "iterations out of range"),
        ("carol:" + ALICE.replace("$101$", "$0$"), "iterations out of range"),
        (f"alice:{BOB}", "alice has a line already"),
    ],
)
def test_a_bad_line_is_named_and_its_secret_never_shown(tmp_path: Path, line: str, says: str) -> None:
    path = written(tmp_path, f"alice:{ALICE}\n\n{line}\n")
    with pytest.raises(BadConfig, match=says) as caught:
        read_password_file(path)
    (error,) = caught.value.lines
    assert error.startswith(f"{path}:3: ")
    assert "secret" not in error
    assert "ABCD" not in error


def test_many_bad_lines_are_counted(tmp_path: Path) -> None:
    with pytest.raises(BadConfig) as caught:
        read_password_file(written(tmp_path, "x\n" * 50))
    assert len(caught.value.lines) == 11
    assert caught.value.lines[-1].endswith("and 40 more bad lines")


def test_an_empty_file_is_no_open_door(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="has no users in it"):
        read_password_file(written(tmp_path, "# nobody\n"))


def test_a_hash_of_mosquitto_may_stand_in_the_config() -> None:
    assert parse_settings(f'[auth.users]\nalice = "{ALICE}"\n').auth.users == {"alice": ALICE}
    assert verify_password("wonder", check_hash(ALICE))


def test_its_cost_has_a_limit() -> None:
    """PBKDF2's own numbers: RFC 7914, section 11, has some for SHA-256 only, so they are compared with hashlib's."""
    digest = hashlib.pbkdf2_hmac("sha512", b"p", b"saltsaltsalt", 7, 64)
    salt, hashed = (base64.b64encode(raw).decode() for raw in (b"saltsaltsalt", digest))
    assert verify_password("p", f"$7$7${salt}${hashed}")
    with pytest.raises(ConfigError, match="out of range"):
        check_hash(f"$7$1000001${salt}${hashed}")


def test_the_config_names_the_file_and_its_users_are_users(tmp_path: Path) -> None:
    path = written(tmp_path, f"bob:{BOB}\n")
    config = tmp_path / "headway.toml"
    config.write_text(f'[auth]\npassword_file = "{path}"\n[auth.users]\nalice = "{ALICE}"\n')
    assert load_settings(config).auth.users == {"alice": ALICE, "bob": BOB}
    path.write_text(f"bob:{BOB}\nalice:{ALICE}\nx\n")
    with pytest.raises(BadConfig) as caught:
        load_settings(config)
    assert caught.value.lines == [f"{config}: auth.password_file: {path}:3: is not NAME:HASH, as mosquitto_passwd "
                                  "writes it"]  # fmt: skip
    path.write_text(f"alice:{ALICE}\n")
    with pytest.raises(BadConfig, match=r"auth\.users\.alice: is in .*passwd, too"):
        load_settings(config)
    path.unlink()
    with pytest.raises(BadConfig, match=r"auth\.password_file: .*passwd: cannot be read: no such file"):
        load_settings(config)


def test_a_misspelt_key_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(BadConfig, match=r"auth\.pasword_file: unknown key \(did you mean password_file\?\)"):
        parse_settings('[auth]\npasword_file = "x"\n')
