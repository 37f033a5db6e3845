"""A board of the ten longest delays, drawn anew when something has changed: python board.py [mqtt://HOST:PORT]

The broker needs a keyed topic:

    [[topic]]
    filter = "flights/#"
    key = "/tailnum"

Stop the broker and start it again while the board is shown: it keeps its image, says since when it is old, and goes on.
"""

import asyncio
import sys
from contextlib import suppress

from headway.client import View


def draw(flights: View) -> None:
    worst = sorted(flights.values(), key=lambda entry: -entry.json().get("delay", 0))[:10]
    print("\033[H\033[J" + ("current" if flights.current else f"{flights.stale_s:.1f} s old: {flights.why_stale}"))
    for entry in worst:
        flight = entry.json()
        print(f"{flight['tailnum']:10} {flight.get('delay', 0):5}")


async def main(url: str) -> None:
    async with View(url, "flights/#", key="/tailnum", conflate="500ms") as flights:
        changes = flights.changes()
        while True:
            with suppress(TimeoutError):  # the age changes also when nothing else does
                async with asyncio.timeout(1):
                    await changes.some(1000)
            draw(flights)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "mqtt://127.0.0.1:1883"))
