"""Certificates for trying out TLS."""

from __future__ import annotations

import ipaddress
import os
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from headway.cli.options import plainly
from headway.core.base import ConfigError

if TYPE_CHECKING:
    from cryptography import x509


# -- certificates ------------------------------------------------------------------------------------------------------
#
# Certificates: a CA of its own, a server's certificate, and clients' certificates.


YEAR = timedelta(days=365)
CLOCKS_DIFFER = timedelta(hours=1)
HOSTS = ("localhost", "127.0.0.1", "::1")


class Pair(NamedTuple):
    """A certificate and its key."""

    certificate: Path
    key: Path


def make_certificates(folder: Path, hosts: Sequence[str] = (), user: str = "client") -> dict[str, bool]:
    """Makes what is not there yet. Returns the certificates' names, and whether each is new. Raises OSError,
    ConfigError."""
    folder.mkdir(parents=True, exist_ok=True)
    authority = _pair(folder, "ca")
    return {
        "ca": _make_ca(authority),
        "server": _make(_pair(folder, "server"), authority, "headway", [*HOSTS, *hosts]),
        user: _make(_pair(folder, user), authority, user, []),
    }


def _pair(folder: Path, name: str) -> Pair:
    return Pair(folder / f"{name}.pem", folder / f"{name}-key.pem")


def _make_ca(pair: Pair) -> bool:
    """Makes the CA. Returns False if it is there already."""
    from cryptography import x509

    if pair.certificate.exists() and pair.key.exists():
        return False
    extensions: list[tuple[x509.ExtensionType, bool]] = [
        (x509.BasicConstraints(ca=True, path_length=0), True), (_usage(signs_certificates=True), True),
    ]  # fmt: skip
    _write(pair, "Headway CA for trying out", extensions, None)
    return True


def _make(pair: Pair, authority: Pair, name: str, hosts: list[str]) -> bool:
    """Makes a server's certificate, or without hosts a client's. Returns False if it is there already."""
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    if pair.certificate.exists() and pair.key.exists():
        return False
    purpose = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
    extensions: list[tuple[x509.ExtensionType, bool]] = [
        (x509.BasicConstraints(ca=False, path_length=None), True), (_usage(signs_certificates=False), True),
        (x509.ExtendedKeyUsage([purpose]), False),
    ]  # fmt: skip
    if hosts:
        extensions.append((x509.SubjectAlternativeName([_host(one) for one in dict.fromkeys(hosts)]), False))
    _write(pair, name, extensions, authority)
    return True


def _write(pair: Pair, name: str, extensions: list[tuple[x509.ExtensionType, bool]], authority: Pair | None) -> None:
    """Writes a certificate, signed by the CA or, without one, by itself. Raises OSError, ConfigError."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issuer, signer = subject, key
    if authority is not None:
        try:
            issuer = x509.load_pem_x509_certificate(authority.certificate.read_bytes()).subject
            loaded = serialization.load_pem_private_key(authority.key.read_bytes(), None)
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{authority.certificate} and {authority.key} cannot be used: {error}") from None
        if not isinstance(loaded, ec.EllipticCurvePrivateKey):
            raise ConfigError(f"{authority.key} is not a key that `headway certs` has made")
        signer = loaded
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number(),
                                      now - CLOCKS_DIFFER, now + YEAR)  # fmt: skip
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    builder = builder.add_extension(identifier, critical=False)
    certificate = builder.sign(signer, hashes.SHA256())
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                serialization.NoEncryption())  # fmt: skip
    pair.key.unlink(missing_ok=True)
    with os.fdopen(os.open(pair.key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(private)
    pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _host(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        try:
            return x509.DNSName(name)
        except ValueError:
            raise ConfigError(f"{name!r} is not the name of a host") from None


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=signs_certificates, crl_sign=signs_certificates, encipher_only=False,
        decipher_only=False,
    )  # fmt: skip


# -- command -----------------------------------------------------------------------------------------------------------
#
# The command that makes certificates for trying out TLS.


NAME_CHARS_MAX = 64
"""The longest common name that X.509 has room for."""


@plainly
def certs(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Where the files go; it is made if it is not there.")
    ] = Path("certs"),
    host: Annotated[
        list[str] | None, typer.Option("--host", metavar="NAME", help="A name or address of the broker; repeatable.")
    ] = None,
    user: Annotated[str, typer.Option("--user", metavar="NAME", help="Whose the client's certificate is.")] = "client",
) -> None:
    """Make a CA, a server's and a client's certificate, for trying out TLS.

    What is there already is kept and used: run it again with another --user for one more client. The certificates are
    valid for a year. The CA's key is not protected, so do not use them where it matters.

    \b
    Examples:
      headway certs
      headway certs certs --host broker.example.org --host 10.0.0.7
      headway certs certs --user bob
    """
    if not user.strip() or not user.isprintable() or len(user) > NAME_CHARS_MAX or "/" in user or user[0] == ".":
        raise ConfigError(f"a user's name has up to {NAME_CHARS_MAX} printable characters without a /")
    if user in ("ca", "server"):
        raise ConfigError(f"{user}.pem is not a client's file: give the user another name")
    try:
        new = make_certificates(folder, host or [], user)
    except OSError as error:
        raise ConfigError(f"{error.filename or folder}: {(error.strerror or str(error)).lower()}") from None
    if host and not new["server"]:
        raise ConfigError(f"{folder / 'server.pem'} is there already, with the names it has: remove it first")
    made = ", ".join(f"{name}.pem" for name, is_new in new.items() if is_new)
    typer.echo(f"made in {folder}: {made or 'nothing, all was there'}")
    typer.echo(_advice(folder, user))


def _advice(folder: Path, user: str) -> str:
    at = shlex.quote(str(folder))
    name = shlex.quote(user)
    return f"""
In the broker's config (SIGHUP reads renewed files):

  [listeners.mqtts]
  url = "mqtts://127.0.0.1:8883"
  [listeners.mqtts.tls]
  certificate = "{folder}/server.pem"
  key = "{folder}/server-key.pem"
  # With these two, a client needs a certificate of this CA, and is the user that it names:
  # ca = "{folder}/ca.pem"
  # verify = "required"

And then:

  mosquitto_pub -h localhost -p 8883 --cafile {at}/ca.pem -t hello -m world
  mosquitto_pub -h localhost -p 8883 --cafile {at}/ca.pem -t hello -m me \\
      --cert {at}/{name}.pem --key {at}/{name}-key.pem"""
