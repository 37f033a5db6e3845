"""What is spoken of TLS, and what is not, as openssl and others see it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.interop.tls_house import House
from tests.interop.waiting import PATIENCE_S

pytest_plugins = ("tests.interop.tls_fixtures",)



def s_client(house: House, *more: str, listener: str = "mqtt", said: str = "") -> str:
    command = ["openssl", "s_client", "-connect", f"localhost:{house.port(listener)}", "-CAfile", str(house.ca), *more]
    done = subprocess.run(command, input=said, capture_output=True, text=True, timeout=PATIENCE_S)
    return done.stdout + done.stderr


VERSIONS = {"-tls1_3": "TLSv1.3", "-tls1_2": "TLSv1.2", "-tls1_1": None, "-tls1": None}
CIPHERS = {
    "ECDHE-ECDSA-AES256-GCM-SHA384": True, "ECDHE-ECDSA-CHACHA20-POLY1305": True, "AES128-SHA": False,
    "NULL": False, "aNULL": False, "DES-CBC3-SHA": False, "RC4-SHA": False, "EXPORT": False,
}  # fmt: skip


@pytest.mark.parametrize(("version", "spoken"), VERSIONS.items())
def test_versions(house: House, version: str, spoken: str | None) -> None:
    said = s_client(house, version, "-cipher", "ALL:@SECLEVEL=0")
    if spoken is None:
        assert "New, (NONE), Cipher is (NONE)" in said or "no protocols available" in said
    else:
        assert f"New, {spoken}, Cipher is" in said
        assert "Verify return code: 0 (ok)" in said


@pytest.mark.parametrize(("cipher", "spoken"), CIPHERS.items())
def test_ciphers(house: House, cipher: str, spoken: bool) -> None:
    said = s_client(house, "-tls1_2", "-cipher", f"{cipher}:@SECLEVEL=0")
    assert (f"Cipher is {cipher}" in said) == spoken


def test_alpn(house: House) -> None:
    assert "ALPN protocol: mqtt" in s_client(house, "-alpn", "mqtt")
    assert "ALPN protocol: amqp" in s_client(house, "-alpn", "amqp", listener="amqp")
    assert "No ALPN negotiated" in s_client(house, "-alpn", "nobody-speaks-this")


@pytest.mark.parametrize(("asked", "shown"), [
    ("other.example", "CN = other"), ("a.wild.example", "CN = other"), ("localhost", "CN = headway"),
    ("unheard.of", "CN = headway"),
])  # fmt: skip
def test_sni(house: House, asked: str, shown: str) -> None:
    assert f"subject={shown}" in s_client(house, "-servername", asked)


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_session_tickets(house: House, tmp_path: Path, version: str) -> None:
    """The ticket of TLS 1.3 comes behind the handshake, so the client stays until the broker ends it."""
    kept, said = str(tmp_path / "session"), "no MQTT"
    assert "New, TLSv1." in s_client(house, version, "-ign_eof", "-sess_out", kept, said=said)
    assert "Reused, TLSv1." in s_client(house, version, "-ign_eof", "-sess_in", kept, said=said)


def test_renegotiation_is_off(house: House) -> None:
    command = ["openssl", "s_client", "-connect", f"localhost:{house.port()}", "-CAfile", str(house.ca), "-tls1_2"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as asking:
        assert asking.stdin is not None
        assert asking.stdout is not None
        for line in asking.stdout:
            if b"Verify return code" in line:
                break
        asking.stdin.write(b"R\n")
        asking.stdin.flush()
        assert b"no renegotiation" in asking.communicate(timeout=PATIENCE_S)[0]
