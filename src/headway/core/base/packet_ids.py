"""Packet ids of one client, one bit each: a client that publishes at QoS 2 may have all 65,535 in use."""

from __future__ import annotations

from collections.abc import Iterator

PAGE_BITS = 8
_PAGE = (1 << PAGE_BITS) - 1


class PacketIds:
    """A set of packet ids. Ids of one page of 256 share an integer, so all ids together take 30 kB."""

    __slots__ = ("_pages", "_size")

    def __init__(self) -> None:
        self._pages: dict[int, int] = {}
        """Bits of the lower 8 bits of each id, by the upper bits."""
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __contains__(self, packet_id: int) -> bool:
        return bool(self._pages.get(packet_id >> PAGE_BITS, 0) >> (packet_id & _PAGE) & 1)

    def __iter__(self) -> Iterator[int]:
        for page, bits in list(self._pages.items()):
            for low in range(_PAGE + 1):
                if bits >> low & 1:
                    yield page << PAGE_BITS | low

    def add(self, packet_id: int) -> None:
        if packet_id not in self:
            page = packet_id >> PAGE_BITS
            self._pages[page] = self._pages.get(page, 0) | 1 << (packet_id & _PAGE)
            self._size += 1

    def discard(self, packet_id: int) -> bool:
        """Removes the id. Returns False if the set did not have it."""
        if packet_id not in self:
            return False
        page = packet_id >> PAGE_BITS
        self._pages[page] ^= 1 << (packet_id & _PAGE)
        if not self._pages[page]:
            del self._pages[page]
        self._size -= 1
        return True
