"""Guessers: addresses whose logins failed of late. Each further login from one has to wait for its turn.

Theory of operation. A few failures are free, for people mistype. After those the turns of an address are apart, twice
as far with each failure, up to ``TURN_MAX_S``. A login whose turn would come too late is refused without a check. So
somebody who tries many names gets no further than somebody who tries one. An address is forgiven when none of its
logins has failed for ``FORGIVEN_S``.

Rules:
- Of an IPv6 address, the network counts (64 bits): its owner has all the rest.
- There are ``ADDRESSES_MAX`` addresses at most; the one that failed longest ago is forgotten for another.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

FREE = 10
TURN_MIN_S = 0.5
TURN_MAX_S = 30.0
WAIT_MAX_S = 5.0
"""The longest time that a login waits for its turn; listeners give a client ten seconds by default."""
FORGIVEN_S = 300.0
ADDRESSES_MAX = 10_000


@dataclass(slots=True)
class _Record:
    failures: int
    failed_s: float
    """When the last login failed."""
    next_s: float
    """When the next turn is."""


class Guessers:
    def __init__(self) -> None:
        self._records: dict[str, _Record] = {}
        """By network, the one that failed longest ago first."""

    def slows(self, address: str, now: float) -> bool:
        """Returns whether logins from an address have to wait for turns."""
        record = self._records.get(network_of(address))
        return record is not None and record.failures >= FREE and now - record.failed_s < FORGIVEN_S

    def turn(self, address: str, now: float) -> float:
        """Takes the next turn of an address. Returns the seconds until then; if these are more than ``WAIT_MAX_S``, the
        turn is not taken."""
        if not self.slows(address, now):
            return 0.0
        record = self._records[network_of(address)]
        begin_s = max(now, record.next_s)
        if begin_s - now <= WAIT_MAX_S:
            record.next_s = begin_s + _apart_s(record.failures)
        return begin_s - now

    def failed(self, address: str, now: float) -> bool:
        """Notes that a login failed. Returns whether this address has to wait from now on, and did not before."""
        network = network_of(address)
        record = self._records.pop(network, None)
        if record is None or now - record.failed_s >= FORGIVEN_S:
            record = _Record(0, now, now)
        self._records[network] = record
        record.failures += 1
        record.failed_s = now
        if record.failures >= FREE:
            record.next_s = max(record.next_s, now + _apart_s(record.failures))
        if len(self._records) > ADDRESSES_MAX:
            del self._records[next(iter(self._records))]
        return record.failures == FREE


def _apart_s(failures: int) -> float:
    """Returns the time between two turns."""
    return min(TURN_MAX_S, TURN_MIN_S * 2.0 ** min(16, failures - FREE))


def network_of(address: str) -> str:
    """Returns the part of an address that says whose it is."""
    try:
        ip = ipaddress.ip_address(address.strip("[]").partition("%")[0])
    except ValueError:
        return address
    if ip.version == 4:
        return str(ip)
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return str(ipaddress.ip_network((int(ip) >> 64 << 64, 64)))
