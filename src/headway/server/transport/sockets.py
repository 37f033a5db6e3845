"""Listening sockets."""

from __future__ import annotations

import socket

QUIET_S = 60
PROBE_EVERY_S = 15
PROBES = 4
"""TCP keep-alive: after ``QUIET_S`` of silence the kernel probes the peer, which has two minutes in all to answer. This
finds silent subscribers without keep-alive or heartbeat whose machine was switched off."""


def bound(host: str, port: int) -> socket.socket:
    """Returns a bound socket that does not listen yet. Accepted sockets inherit its options. Raises OSError if the
    address cannot be had."""
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with_options(sock)
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock


def with_options(sock: socket.socket) -> socket.socket:
    """Sets the options of a listening socket."""
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, QUIET_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_EVERY_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)
    return sock
