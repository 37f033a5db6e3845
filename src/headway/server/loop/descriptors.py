"""Descriptors: how many files and sockets this process may have open, and which of them clients do not get.

The kernel gives each new file the lowest number that is free. So the number of a new socket tells that all below it are
in use, and nothing has to be counted: clients get the numbers below ``descriptors_for_clients``. The rest is for the
admin API, the journal, the spill and certificates, so an operator gets an answer however many clients come.
"""

from __future__ import annotations

import os
import resource
import sys

KEPT_BACK = 64
SHARE_KEPT_BACK = 4
"""At most one descriptor in so many is kept back."""


def raise_file_limit() -> int:
    """Raises the limit of open files as far as the operating system allows; returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def descriptors_for_clients() -> int:
    """Returns the number from which on descriptors are not for clients."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY:
        return sys.maxsize
    return soft - min(KEPT_BACK, soft // SHARE_KEPT_BACK)


def lowest_free_descriptor() -> int:
    """Returns the number that the next file would have. Raises OSError if there is none."""
    number = os.open(os.devnull, os.O_RDONLY)
    os.close(number)
    return number
