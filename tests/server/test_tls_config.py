"""Certificates in the config: what is wrong with them is said, with what to do."""

from __future__ import annotations

import os
import re
from datetime import timedelta
from pathlib import Path

import pytest
from tests.certificates import make, serialization, x509
from tests.interop.command import headway
from tests.server.configs import mistakes

from headway.core.base import ConfigError
from headway.server.config import bad_certificates, lint, load_all_tls, parse_settings

TLS = """
[listeners.mqtt]
url = "mqtts://127.0.0.1:0"
[listeners.mqtt.tls]
certificate = "{certificate}"
key = "{key}"
{more}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make(tmp_path, "ca", is_ca=True)
    make(tmp_path, "server", ca="ca", hosts=("localhost",))
    return tmp_path


def config(folder: Path, name: str = "server", key: str = "", more: str = "") -> str:
    return TLS.format(certificate=folder / f"{name}.pem", key=key or folder / f"{name}-key.pem", more=more)


def test_a_sound_one(folder: Path) -> None:
    settings = parse_settings(config(folder, more=f'ca = "{folder}/ca.pem"\nverify = "optional"'))
    assert bad_certificates(settings) == []
    assert list(load_all_tls(settings)) == ["listeners.mqtt.tls"]
    assert not [one for one in lint(settings) if "tls" in one.key]


def test_ports_follow_the_scheme() -> None:
    text = '[listeners.a]\nurl = "{}s://127.0.0.1"\n[listeners.a.tls]\ncertificate = "x"'
    assert parse_settings(text.format("mqtt")).listeners["a"].url.port == 8883
    assert parse_settings(text.format("amqp")).listeners["a"].url.port == 5671


@pytest.mark.parametrize(("text", "words"), [
    ('url = "mqtts://127.0.0.1:0"', ["listeners.x.url", "takes a [listeners.x.tls]", "headway certs"]),
    ('url = "mqtt://127.0.0.1:0"\ntls = { certificate = "x" }', ["is without TLS", "write mqtts://"]),
    ('url = "mqtts://127.0.0.1:0"\ntls = { certificate = "x", verify = "required" }', ["tls.ca", "is missing"]),
    ('url = "mqtts://127.0.0.1:0"\ntls = { certificate = "x", ca = "y" }', ["tls.verify", "is missing"]),
    ('url = "mqtts://127.0.0.1:0"\ntls = { certificate = "x", user = "common_name" }', ["tls.user", "verify"]),
    ('url = "mqtts://127.0.0.1:0"\ntls = { certificate = "x", verify = "maybe" }', ["none, optional, required"]),
    ('url = "mqtts://127.0.0.1:0"\ntls = { certificate = "x", chain = "y" }', ["tls.chain", "unknown key"]),
    ('url = "mqtts://127.0.0.1:0"\ntls = { }', ["tls.certificate", "is missing"]),
])  # fmt: skip
def test_contradictions(text: str, words: list[str]) -> None:
    (line,) = mistakes(f"[listeners.x]\n{text}\n")
    assert all(word in line for word in words), line


def test_certificates_log_in_beyond_loopback() -> None:
    text = '[listeners.x]\nurl = "mqtts://0.0.0.0:0"\n[listeners.x.tls]\ncertificate = "x"\n'
    (line,) = mistakes(text)
    assert 'verify = "required"' in line
    settings = parse_settings(text + 'ca = "y"\nverify = "required"\n')
    assert not settings.listeners["x"].allows_anonymous(users=False)
    (line,) = mistakes(text + 'ca = "y"\nverify = "required"\nuser = "none"\n')
    assert "nobody would have to log in" in line


def wrong(text: str) -> str:
    settings = parse_settings(text)
    (line,) = bad_certificates(settings)
    with pytest.raises(ConfigError, match=re.escape(line)):
        load_all_tls(settings)
    return line


def test_files_that_cannot_be_used(folder: Path) -> None:
    assert "nowhere.pem cannot be read: no such file" in wrong(config(folder, "nowhere"))
    assert "does not have a private key in PEM" in wrong(config(folder, key=str(folder / "ca.pem")))
    line = wrong(config(folder, key=str(folder / "ca-key.pem")))
    assert "listeners.mqtt.tls.key: " in line
    assert "ca-key.pem is not the key of" in line
    (folder / "torn.pem").write_text("-----BEGIN CERTIFICATE-----\nMIIB\n")
    assert "torn.pem" in wrong(config(folder, "torn", key=str(folder / "server-key.pem")))
    assert "listeners.mqtt.tls.ca: " in wrong(config(folder, more=f'ca = "{folder}/torn.pem"\nverify = "required"'))
    assert "also[1].certificate: " in wrong(config(folder, more='also = [{ certificate = "/nowhere" }]'))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_this_user_cannot_read(folder: Path) -> None:
    (folder / "server-key.pem").chmod(0)
    assert "let this user read it" in wrong(config(folder))


def test_a_key_with_a_password(folder: Path) -> None:
    loaded = serialization.load_pem_private_key((folder / "server-key.pem").read_bytes(), None)
    locked = loaded.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                  serialization.BestAvailableEncryption(b"secret"))  # fmt: skip
    (folder / "server-key.pem").write_bytes(locked)
    assert "has a password" in wrong(config(folder))


@pytest.mark.parametrize(("ends", "words"), [
    (timedelta(days=-3), "has expired on"), (timedelta(days=3), "expires on"), (timedelta(days=30), ""),
])  # fmt: skip
def test_dates_are_doubts(folder: Path, ends: timedelta, words: str) -> None:
    make(folder, "dated", ca="ca", ends=ends)
    settings = parse_settings(config(folder, "dated"))
    assert bad_certificates(settings) == []
    found = [one for one in lint(settings) if one.key == "listeners.mqtt.tls.certificate"]
    assert [words in one.text and "SIGHUP" in one.text and one.line == 5 for one in found] == [True] * bool(words)


def test_a_key_that_everybody_can_read_is_a_doubt(folder: Path) -> None:
    (folder / "server-key.pem").chmod(0o644)
    (found,) = [one for one in lint(parse_settings(config(folder))) if one.key == "listeners.mqtt.tls.key"]
    assert "chmod" in found.text


def test_passwords_in_clear_are_a_doubt() -> None:
    users = '[auth.users]\nalice = "$scrypt$ln=15,r=8,p=1$c2FsdHNhbHRzYWx0c2FsdA$' + "A" * 43 + '"\n'
    text = '[listeners.x]\nurl = "mqtt://{}:0"\n' + users
    keys = [[one.key for one in lint(parse_settings(text.format(host)))] for host in ("0.0.0.0", "127.0.0.1")]
    assert ["listeners.x.url" in found for found in keys] == [True, False]


def test_check_and_serve_say_what_is_wrong(folder: Path) -> None:
    path = folder / "headway.toml"
    path.write_text(config(folder, "nowhere") + f'[pool]\ndisk_path = "{folder}"\n')
    for command in (["check", str(path)], ["serve", "--config", str(path)]):
        done = headway(*command)
        assert done.returncode == 2
        assert "listeners.mqtt.tls.certificate: " in done.stderr


def test_certs(tmp_path: Path) -> None:
    folder = tmp_path / "certs"
    first = headway("certs", str(folder), "--host", "broker.example")
    assert first.returncode == 0, first.stderr
    assert {path.name for path in folder.iterdir()} == {
        "ca.pem", "ca-key.pem", "server.pem", "server-key.pem", "client.pem", "client-key.pem",
    }  # fmt: skip
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.glob("*-key.pem"))
    listed = x509.load_pem_x509_certificate((folder / "server.pem").read_bytes()).extensions
    names = listed.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(x509.DNSName)
    assert names == ["localhost", "broker.example"]
    before = (folder / "server.pem").read_bytes()
    again = headway("certs", str(folder), "--user", "bob")
    assert "bob.pem" in again.stdout
    assert (folder / "server.pem").read_bytes() == before, "what is there is kept"
    more = f'ca = "{folder}/ca.pem"\nverify = "required"'
    assert bad_certificates(parse_settings(config(folder, more=more))) == []
    for bad in (["--user", "../x"], ["--user", "ca"], ["--host", "other.example"]):
        assert headway("certs", str(folder), *bad).returncode == 2
