"""Flap control: who is disconnected for slowness again and again is readmitted ever later.

The first time costs nothing: the client may come straight back. From the second within ``forgive_s`` on the door stays
shut for ``base_s``, then twice that, up to ``max_s``. Staying out of trouble for ``forgive_s`` clears the record.
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
        """client -> (strikes, last strike, shut out until)"""

    def strike(self, client: str, now: float) -> float:
        """The client was disconnected for slowness. Returns for how many seconds it is shut out."""
        strikes, last, _ = self._strikes.pop(client, (0, now, now))
        strikes = 1 if now - last > self.forgive_s else strikes + 1
        out_s = 0.0 if strikes == 1 else min(self.max_s, self.base_s * 2.0 ** min(strikes - 2, 32))
        self._strikes[client] = (strikes, now, now + out_s)
        if len(self._strikes) > CLIENTS_MAX:
            self._strikes.popitem(last=False)
        return out_s

    def wait_s(self, client: str, now: float) -> float:
        """For how much longer the client is shut out, in begun tenths of a second; 0 when it may come in."""
        entry = self._strikes.get(client)
        return max(0.0, ceil((entry[2] - now) * 10 - 1e-6) / 10) if entry else 0.0

    def strikes(self, client: str) -> int:
        entry = self._strikes.get(client)
        return entry[0] if entry else 0
