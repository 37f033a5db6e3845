"""Flap control: a client that is disconnected for slowness again and again has to wait longer each time.

After the first disconnect the client may come straight back. After the second one within ``forgive_s`` it is shut out
for ``base_s``, then for twice as long each time, up to ``max_s``. ``forgive_s`` without a disconnect clears the record.
"""

from __future__ import annotations

from collections import OrderedDict
from math import ceil

CLIENTS_MAX = 10_000


class FlapControl:
    def __init__(self, base_s: float = 1.0, max_s: float = 300.0, forgive_s: float = 600.0) -> None:
        self.base_s = base_s
        self.max_s = max_s
        self.forgive_s = forgive_s
        self._strikes: OrderedDict[str, tuple[int, float, float]] = OrderedDict()
        """By client: (strikes, time of the last strike, shut out until)."""

    def strike(self, client: str, now: float) -> float:
        """Notes that a client was disconnected for slowness. Returns for how many seconds it is shut out."""
        strikes, last, _ = self._strikes.pop(client, (0, now, now))
        strikes = 1 if now - last > self.forgive_s else strikes + 1
        out_s = 0.0 if strikes == 1 else min(self.max_s, self.base_s * 2.0 ** min(strikes - 2, 32))
        self._strikes[client] = (strikes, now, now + out_s)
        if len(self._strikes) > CLIENTS_MAX:
            self._strikes.popitem(last=False)
        return out_s

    def wait_s(self, client: str, now: float) -> float:
        """Returns for how many more seconds the client is shut out, rounded up to tenths; 0: it may connect."""
        entry = self._strikes.get(client)
        return max(0.0, ceil((entry[2] - now) * 10 - 1e-6) / 10) if entry else 0.0

    def strikes(self, client: str) -> int:
        entry = self._strikes.get(client)
        return entry[0] if entry else 0
