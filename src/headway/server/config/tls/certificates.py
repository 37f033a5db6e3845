"""TLS in the config: certificates, and what is wrong with their files.

Rules:
- TLS 1.2 and 1.3. No renegotiation, no compression; the server chooses the cipher.
- Files are read when the broker starts, when it reloads its config, and by ``headway check``. A file that cannot be
  used is an error. A certificate that has expired, or will soon, is only doubtful: the broker starts with it, because a
  broker that does not start helps nobody.
- A listener may have more certificates, for other names (SNI). A client that asks for a name that none of them has gets
  the first.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import Field

from headway.core.base import ConfigError
from headway.server.config.fields import Path_, Table, one_of
from headway.store.toml import open_regular

if TYPE_CHECKING:
    from cryptography import x509

SOON = timedelta(days=14)
RENEW = "put a new one there, and send the broker SIGHUP"
_OPTIONS = ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE


class CertificateTable(Table):
    """One certificate."""

    certificate: Path_
    """The server's certificate, and after it those between it and the CA's."""
    key_given: Path_ | None = Field(default=None, alias="key")
    """The private key, without a password.

    Default: in the certificate's file."""

    @property
    def key(self) -> Path:
        return self.key_given or self.certificate


class TlsTable(CertificateTable):
    """``[listeners.NAME.tls]`` and ``[server.tls]``"""

    ca: Path_ | None = None
    """The CAs of clients' certificates."""
    verify: Annotated[Literal["none", "optional", "required"], one_of("none", "optional", "required")] = "none"
    """Whether clients need a certificate."""
    user_given: Annotated[
        Literal["common_name", "alternative_name", "none"] | None, one_of("common_name", "alternative_name", "none")
    ] = Field(default=None, alias="user")
    """The part of a client's certificate that is its user name; ``"alternative_name"``: the first of its alternative
    names; ``"none"``: it logs in as usual.

    Default: ``"common_name"``."""
    also: list[CertificateTable] = Field(default_factory=list)
    """Certificates for other host names (SNI): ``[{ certificate = "…", key = "…" }]``, each for the names in it; who
    asks for another name gets the first."""

    @property
    def user(self) -> str:
        return self.user_given or "common_name"

    @property
    def names_users(self) -> bool:
        """Whether certificates say who the clients are that show one."""
        return self.verify != "none" and self.user != "none"

    @property
    def logs_in(self) -> bool:
        """Whether every client is known by its certificate."""
        return self.verify == "required" and self.user != "none"


class TlsContext(NamedTuple):
    """Certificates as a listener uses them in handshakes."""

    ssl: ssl.SSLContext
    user: str


def contradictions(table: TlsTable) -> Iterator[tuple[str, str]]:
    """Yields keys, and what is wrong with them, without opening files."""
    if table.verify != "none" and table.ca is None:
        yield "ca", "is missing: the CA by which clients' certificates are verified"
    if table.verify == "none" and table.ca is not None:
        yield "verify", 'is missing: with a ca, say verify = "required" or "optional"'
    if table.verify == "none" and table.user_given is not None:
        yield "user", 'is for clients with certificates: say verify = "required" or "optional", too'


def load_tls(table: TlsTable, where: str, protocols: Sequence[str]) -> TlsContext:
    """Reads the certificates. ``protocols``: the names for ALPN. Raises ConfigError."""
    first = _context(table, where, table, protocols)
    others = [_context(one, f"{where}.also[{number}]", table, protocols) for number, one in enumerate(table.also, 1)]
    if others:
        named = {name: context for context, one in zip(others, table.also, strict=True) for name in names(one)}
        first.sni_callback = _chooser(named)
    return TlsContext(first, table.user)


def _context(one: CertificateTable, where: str, table: TlsTable, protocols: Sequence[str]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= _OPTIONS
    context.set_alpn_protocols(list(protocols))
    certificate, key = one.certificate, one.key
    _readable(certificate, f"{where}.certificate", "-----BEGIN CERTIFICATE-----", "a certificate")
    _readable(key, f"{where}.key", "PRIVATE KEY-----", "a private key")
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except _Locked:
        text = f"{key} has a password, which nobody could type in: remove it (openssl pkey -in {key.name} -out NEW)"
        raise ConfigError(f"{where}.key: {text}") from None
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            text = f"{key} is not the key of {certificate}: give the two that were made together"
            raise ConfigError(f"{where}.key: {text}") from None
        text = f"{certificate} and {key} cannot be used: {_words(error)}; make them anew"
        raise ConfigError(f"{where}.certificate: {text}") from None
    if table.ca is not None:
        _readable(table.ca, f"{where}.ca", "-----BEGIN CERTIFICATE-----", "a certificate")
        try:
            context.load_verify_locations(table.ca)
        except ssl.SSLError as error:
            raise ConfigError(f"{where}.ca: {table.ca} cannot be used: {_words(error)}; make it anew") from None
    context.verify_mode = {
        "none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED,
    }[table.verify]  # fmt: skip
    return context


class _Locked(Exception):
    """A key has a password."""


def _no_password() -> str:
    raise _Locked


def _readable(path: Path, where: str, mark: str, what: str) -> None:
    """Raises ConfigError unless the file is there and has PEM of this kind."""
    try:
        with open_regular(path) as file:
            text = file.read().decode("ascii", errors="replace")
    except OSError as error:
        advice = "let this user read it" if isinstance(error, PermissionError) else "give the path of one"
        problem = (error.strerror or str(error)).lower()
        raise ConfigError(f"{where}: {path} cannot be read: {problem}; {advice}") from None
    if mark not in text:
        text = f"{path} does not have {what} in PEM, which begins with -----BEGIN; give one that has"
        raise ConfigError(f"{where}: {text}")


def _words(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()


# -- SNI --------------------------------------------------------------------------------------------------------------


def _chooser(named: dict[str, ssl.SSLContext]) -> Any:
    def choose(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        wanted = (name or "").lower()
        context = named.get(wanted) or named.get("*." + wanted.partition(".")[2])
        if context is not None:
            connection.context = context

    return choose


def names(one: CertificateTable) -> list[str]:
    """Returns the host names of a certificate, in small letters. Raises ConfigError, OSError."""
    from cryptography import x509

    certificate = _parsed(one.certificate)
    try:
        listed = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [name.lower() for name in listed.get_values_for_type(x509.DNSName)]


# -- dates ------------------------------------------------------------------------------------------------------------


def doubts(table: TlsTable, now: datetime | None = None) -> Iterator[tuple[str, str]]:
    """Yields keys and doubts about certificates that can be used: those that have expired, or will soon, and keys that
    others can read."""
    now = now or datetime.now(UTC)
    for prefix, one in (("", table), *((f"also[{number}].", one) for number, one in enumerate(table.also, 1))):
        try:
            yield from ((prefix + "certificate", text) for text in _dated(one.certificate, now))
            if os.stat(one.key).st_mode & 0o004:
                yield prefix + "key", f"{one.key} can be read by every user of this machine: chmod o-r"
        except (OSError, ConfigError):
            continue  # an error of its own
    if table.ca is not None:
        try:
            yield from (("ca", text) for text in _dated(table.ca, now))
        except (OSError, ConfigError):
            return


def _dated(path: Path, now: datetime) -> Iterator[str]:
    certificate = _parsed(path)
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > ends:
        yield f"{path} has expired on {ends:%Y-%m-%d}, so clients refuse it: {RENEW}"
    elif now < begins:
        yield f"{path} is valid from {begins:%Y-%m-%d} on, and clients refuse it until then: is the clock right?"
    elif now > ends - SOON:
        yield f"{path} expires on {ends:%Y-%m-%d}: {RENEW} before that"


def _parsed(path: Path) -> x509.Certificate:
    """Returns the first certificate of a file. Raises ConfigError, OSError."""
    from cryptography import x509

    try:
        with open_regular(path) as file:
            return x509.load_pem_x509_certificate(file.read())
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
