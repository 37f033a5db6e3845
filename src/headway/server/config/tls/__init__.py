"""Certificates in the config, and the files they are in."""

from headway.server.config.tls.certificates import TlsContext, TlsTable, contradictions, doubts, load_tls

__all__ = [
    "contradictions", "doubts", "load_tls", "TlsContext", "TlsTable",
]
