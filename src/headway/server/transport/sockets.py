"""Listening sockets."""

from __future__ import annotations

import socket
from contextlib import suppress

QUIET_S = 60
PROBE_EVERY_S = 15
PROBES = 4
"""TCP keep-alive: after ``QUIET_S`` of silence the kernel probes the peer, which has two minutes in all to answer. This
finds silent subscribers without keep-alive or heartbeat whose machine was switched off."""

RETRY_MS = 1000
FOR_EVER_MS = 2**31 - 1
_RTO_MAX_MS = 44
"""TCP_RTO_MAX_MS of linux/tcp.h, from Linux 6.15 on."""


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


def retry_soon(sock: socket.socket) -> None:
    """Lets the kernel try once in ``RETRY_MS`` whether a small receive buffer on this host has room again. By itself it
    tries ever more seldom, and a client that reads once in a while gets little then.

    The kernel takes a peer for dead after so many tries, which are over sooner now. On this host it is not dead: it
    does not read, and that is for a policy to judge. So the kernel is told to go on for ever."""
    with suppress(OSError):  # the kernel is older, or the connection is over
        sock.setsockopt(socket.IPPROTO_TCP, _RTO_MAX_MS, RETRY_MS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, FOR_EVER_MS)
