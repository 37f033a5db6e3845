"""Certificates for trying out TLS."""

from headway.cli.certs.certificates import make_certificates
from headway.cli.certs.command import certs

__all__ = [
    "certs", "make_certificates",
]
