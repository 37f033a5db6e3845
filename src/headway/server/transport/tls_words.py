"""Words for what goes wrong with TLS: one sentence that says who did what, for the log and for ``headway why``."""

from __future__ import annotations

import ssl
from typing import Final

from headway.core.base import Reason
from headway.server.transport.byte_stream import StreamError

HANDSHAKE_BYTE: Final = 0x16
"""The first byte of a TLS connection: the type of a record with part of a handshake. The version follows, 3.x."""
_NO_CLIENT_CERTIFICATE = {"PEER_DID_NOT_RETURN_A_CERTIFICATE"}
_TOO_OLD = {"UNSUPPORTED_PROTOCOL", "VERSION_TOO_LOW", "WRONG_SSL_VERSION", "NO_PROTOCOLS_AVAILABLE"}
_NOT_TLS = {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "UNKNOWN_PROTOCOL", "BAD_PACKET_LENGTH"}
_NOTHING_IN_COMMON = {
    "NO_SHARED_CIPHER", "NO_SUITABLE_KEY_SHARE", "NO_SHARED_SIGNATURE_ALGORITHMS", "NO_SUITABLE_SIGNATURE_ALGORITHM",
}  # fmt: skip
_REFUSED = {
    "UNKNOWN_CA": "it does not know the CA that signed it; give the client the CA's certificate",
    "CERTIFICATE_EXPIRED": "it has expired",
    "BAD_CERTIFICATE": "it is not for the host name that the client asked for, or cannot be verified",
    "CERTIFICATE_UNKNOWN": "it does not trust it",
    "CERTIFICATE_REVOKED": "it was revoked",
    "UNSUPPORTED_CERTIFICATE": "it cannot use such a certificate",
}  # fmt: skip


def is_tls(data: bytes | bytearray) -> bool:
    """Returns whether a connection's first bytes are TLS."""
    return data[0] == HANDSHAKE_BYTE and (len(data) < 2 or data[1] == 3)


def not_tls(url: str) -> StreamError:
    return StreamError(
        f"the client did not begin with TLS: it has to use {url}, with a CA if the certificate needs one",
        Reason.PROTOCOL_ERROR,
    )


def unwanted_tls(listener: str) -> str:
    return (
        "the client speaks TLS, and this listener does not: give the client the address of one that does, or this one "
        f"a [listeners.{listener}.tls]"
    )


def worded(error: ssl.SSLError, *, opening: bool) -> StreamError:
    """Returns an error of TLS in words. ``opening``: the handshake was under way."""
    name = error.reason or ""
    alert = name.partition("_ALERT_")[2]
    if isinstance(error, ssl.SSLCertVerificationError):
        return StreamError(f"the client's certificate was refused: {error.verify_message}", Reason.NOT_AUTHORIZED)
    if name in _NO_CLIENT_CERTIFICATE:
        return StreamError("the client shows no certificate, and this listener requires one", Reason.NOT_AUTHORIZED)
    if alert in _REFUSED:
        text = f"the client refused the broker's certificate: {_REFUSED[alert]}"
    elif name in _TOO_OLD or alert == "PROTOCOL_VERSION":
        text = "the client offers no version of TLS that is spoken here (1.2 and 1.3)"
    elif name in _NOTHING_IN_COMMON or alert == "HANDSHAKE_FAILURE":
        text = "the client and the broker have no cipher or signature in common"
    elif name in _NOT_TLS:
        text = "the client sent something that is not TLS"
    elif alert:
        text = f"the client broke off TLS: {alert.replace('_', ' ').lower()}"
    else:
        what = "the TLS handshake failed" if opening else "the TLS connection is broken"
        text = f"{what}: {(name or str(error)).replace('_', ' ').lower()}"
    return StreamError(text, Reason.PROTOCOL_ERROR)
