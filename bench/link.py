"""A link between two namespaces of this machine, so that subscribers are on another host.

A veth pair has segments of the size of its MTU, and windows that move by a few of them, as a network has; the loopback
has segments of 64 KB. A broker that listens on 127.0.0.1 in the near namespace can be reached under this address from
the far one, which has no loopback of its own. Nothing of it is seen from outside of the two, and both are gone with the
block. Needs root, and iproute2.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from bench.errors import BenchError

FAR: Final = "BENCH_FAR"
"""The environment variable that names the namespace of the subscribers."""
MTU_MIN = 576
CLONE_NEWNET = 0x4000_0000
NEAR_ADDRESS, FAR_ADDRESS = "10.200.7.1", "10.200.7.2"


def run_over(mtu: int, arguments: Sequence[str]) -> int:
    """Runs the bench with these arguments in the near namespace. Returns its exit code. Raises BenchError."""
    if mtu < MTU_MIN:
        raise BenchError(f"--link: an MTU of {MTU_MIN} or more, not {mtu}")
    with _link(mtu) as (near, far):
        command = ["ip", "netns", "exec", near, sys.executable, "-m", "bench", *arguments]
        return subprocess.call(command, env=os.environ | {FAR: far})


def far_namespace() -> str:
    """Returns the name of the namespace of the subscribers; empty: they are on this host."""
    return os.environ.get(FAR, "")


def enter(namespace: str) -> None:
    """Moves this thread to a namespace, with all the sockets that it makes from now on."""
    with open(f"/run/netns/{namespace}", "rb") as opened:
        if ctypes.CDLL(None, use_errno=True).setns(opened.fileno(), CLONE_NEWNET):
            raise BenchError(f"the namespace {namespace} cannot be entered: {os.strerror(ctypes.get_errno())}")


@contextmanager
def _link(mtu: int) -> Iterator[tuple[str, str]]:
    near, far = (f"bench-{os.getpid()}-{side}" for side in ("near", "far"))
    try:
        for namespace in (near, far):
            _ip("netns", "add", namespace)
        _ip("-n", near, "link", "add", "v0", "mtu", mtu, "type", "veth", "peer", "name", "v1", "netns", far, "mtu", mtu)
        for namespace, device, address in ((near, "v0", NEAR_ADDRESS), (far, "v1", FAR_ADDRESS)):
            _ip("-n", namespace, "addr", "add", f"{address}/24", "dev", device)
            _ip("-n", namespace, "link", "set", device, "up")
            _ip("netns", "exec", namespace, "sysctl", "-qw", f"net.ipv4.conf.{device}.route_localnet=1")
        _ip("-n", near, "link", "set", "lo", "up")
        _ip("-n", far, "route", "add", "127.0.0.1/32", "via", NEAR_ADDRESS, "dev", "v1", "src", FAR_ADDRESS)
        yield near, far
    finally:
        for namespace in (near, far):
            with suppress(BenchError):
                _ip("netns", "del", namespace)


def _ip(*words: str | int) -> None:
    try:
        subprocess.run(["ip", *map(str, words)], check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        said = error.stderr.strip() if isinstance(error, subprocess.CalledProcessError) else str(error)
        raise BenchError(f"--link needs root, and ip of iproute2: {said}") from None
