"""Certificates for tests: as `headway certs` makes them, and bad ones."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

DAY = timedelta(days=1)


def make(
    folder: Path, name: str, *, ca: str | None = None, common_name: str | None = "", hosts: tuple[str, ...] = (),
    ends: timedelta = 30 * DAY, is_ca: bool = False, with_rsa: bool = False,
) -> tuple[Path, Path]:  # fmt: skip
    """Writes a certificate and its key. ``ca``: the name of the one whose key signs it; ``ends``: from now on."""
    key = rsa.generate_private_key(65537, 2048) if with_rsa else ec.generate_private_key(ec.SECP256R1())
    said = name if common_name == "" else common_name
    subject = x509.Name([] if said is None else [x509.NameAttribute(NameOID.COMMON_NAME, said)])
    issuer, signer = subject, key
    if ca is not None:
        issuer = x509.load_pem_x509_certificate((folder / f"{ca}.pem").read_bytes()).subject
        signer = serialization.load_pem_private_key((folder / f"{ca}-key.pem").read_bytes(), None)  # type: ignore[assignment]
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(min(now, now + ends) - DAY).not_valid_after(now + ends)
        .add_extension(x509.BasicConstraints(is_ca, None), critical=True)
    )  # fmt: skip
    if hosts:
        names = x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    written = builder.sign(signer, hashes.SHA256())
    certificate, private = folder / f"{name}.pem", folder / f"{name}-key.pem"
    certificate.write_bytes(written.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                          serialization.NoEncryption()))  # fmt: skip
    private.chmod(0o600)
    return certificate, private


def trusting(ca: Path, pair: tuple[Path, Path] | None = None) -> ssl.SSLContext:
    """A client's context. ``pair``: its certificate and key."""
    context = ssl.create_default_context(cafile=ca)
    if pair is not None:
        context.load_cert_chain(*pair)
    return context
