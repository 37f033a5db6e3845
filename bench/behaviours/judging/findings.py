"""Findings: the verdicts of all policies on the set, as they come.

Those of the policies in force come as advisories, those of trials from ``GET /v1/trials``.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any, NamedTuple

import aiohttp

from bench.behaviours.consumers import connect
from bench.behaviours.consumers.links import Link
from bench.peers.peer import Instance

ASKED_EVERY_S = 2.0


class Finding(NamedTuple):
    """One verdict. ``clears``: the rule has stepped back."""

    policy: str
    rule: int
    client: str
    filter: str
    time_s: float
    clears: bool
    cause: str
    action: str
    text: str


class Listener(Link):
    """Reads the advisories about slow consumers. ``in_force``: the name under which their policies are compared."""

    def __init__(self, instance: Instance, in_force: str) -> None:
        sock = connect.connect_mqtt(instance.port, "the judge's listener", version=4)
        connect.subscribe_mqtt(sock, "$SYS/headway/#", version=4)
        super().__init__(sock)
        self.findings: list[Finding] = []
        self._in_force = in_force
        self._held = bytearray()

    def took(self, data: bytes) -> None:
        self._held += data
        while (packet := _packet(self._held)) is not None:
            topic, payload = packet
            kind = topic.split("/")[2]
            if kind in ("slow", "recovered"):
                self._finding(kind, json.loads(payload))

    def _finding(self, kind: str, told: dict[str, Any]) -> None:
        policy = self._in_force if told["policy"] else "the broker itself"
        self.findings.append(Finding(
            policy, told["rule"], told["client"], told.get("filter", ""), time.time(), kind == "recovered",
            told.get("cause") or "", told["action"], told["text"],
        ))  # fmt: skip


def _packet(held: bytearray) -> tuple[str, bytes] | None:
    """Takes one PUBLISH at QoS 0 of MQTT 3.1.1 off the beginning; None: none is complete."""
    size, at = 0, 1
    while True:
        if at >= len(held):
            return None
        size |= (held[at] & 0x7F) << 7 * (at - 1)
        at += 1
        if held[at - 1] < 0x80:
            break
    if len(held) < at + size:
        return None
    length = int.from_bytes(held[at : at + 2], "big")
    topic, payload = held[at + 2 : at + 2 + length].decode(), bytes(held[at + 2 + length : at + size])
    del held[: at + size]
    return topic, payload


class TrialVerdicts:
    def __init__(self, instance: Instance, http: aiohttp.ClientSession) -> None:
        self.findings: list[Finding] = []
        self._url = f"http://127.0.0.1:{instance.second_port}/v1/trials"
        self._http = http
        self._after = 0

    async def ask_again_and_again(self) -> None:
        while True:
            await asyncio.sleep(ASKED_EVERY_S)
            await self.ask()

    async def ask(self) -> None:
        """Asks for the verdicts since the last time."""
        while True:
            async with self._http.get(self._url, params={"after": str(self._after)}) as answer:
                told = await answer.json()
            for one in told["verdicts"]:
                self._after = one["number"]
                self.findings.append(Finding(
                    one["policy"], one["rule"], one["client"], one["filter"], one["wall_s"], one["kind"] == "clear",
                    one["cause"] or "", _word(one["action"]), one["text"],
                ))  # fmt: skip
            if not told["verdicts"] or self._after >= told["last"]:
                return


def _word(action: Any) -> str:
    return str(action.get("name") or action.get("kind")) if isinstance(action, dict) else str(action)
