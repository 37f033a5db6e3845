"""Frames of deliveries, taken apart only as far as acknowledgements need it."""

from __future__ import annotations

import struct

DELIVER = struct.pack(">HH", 60, 60)


class MqttFrames:
    def __init__(self, version: int) -> None:
        self.version = version
        self._held = bytearray()

    def feed(self, data: bytes) -> list[int]:
        """Returns the packet ids of the deliveries at QoS 1 that are complete now."""
        held, at, ids = self._held, 0, []
        held += data
        while len(held) - at >= 2:
            size, shift, head = 0, 0, at + 1
            while head < len(held):
                byte = held[head]
                size |= (byte & 0x7F) << shift
                shift, head = shift + 7, head + 1
                if byte < 0x80:
                    break
            else:
                break
            if len(held) - head < size:
                break
            if held[at] & 0xF6 == 0x32:
                topic = int.from_bytes(held[head : head + 2], "big")
                ids.append(int.from_bytes(held[head + 2 + topic : head + 4 + topic], "big"))
            at = head + size
        del held[:at]
        return ids


class AmqpFrames:
    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> list[tuple[int, int]]:
        """Returns the channels and tags of the deliveries whose first frame is complete now."""
        held, at, tags = self._held, 0, []
        held += data
        while len(held) - at >= 8:
            kind, channel, size = struct.unpack_from(">BHI", held, at)
            if len(held) - at < size + 8:
                break
            if kind == 1 and held[at + 7 : at + 11] == DELIVER:
                tag_at = at + 12 + held[at + 11]
                tags.append((channel, struct.unpack_from(">Q", held, tag_at)[0]))
            at += size + 8
        del held[:at]
        return tags
