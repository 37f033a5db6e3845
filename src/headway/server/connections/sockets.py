"""Sockets that listen."""

from __future__ import annotations

import socket

QUIET_S = 60
PROBE_EVERY_S = 15
PROBES = 4
"""A peer of which nothing was heard for so long is asked by the kernel whether it is there; in all it has two minutes.
For who waits without a word, a subscriber without keep-alive or heartbeat whose machine was switched off."""


def bound(host: str, port: int) -> socket.socket:
    """Not listening yet. What it accepts inherits its options. Raises OSError when the address cannot be had."""
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, QUIET_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_EVERY_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock
