"""Counts how often runs are encoded for lanes of MQTT."""

from __future__ import annotations

import pytest

from headway.core.message.record import EncodedRun, Run
from headway.wire.mqtt.dialect import MqttDialect


def encodings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns a list that gets the first sequence of each run that is encoded from now on."""
    calls: list[int] = []
    encode = MqttDialect.encode

    def counted(self: MqttDialect, run: Run, first: int) -> EncodedRun:
        calls.append(first)
        return encode(self, run, first)

    monkeypatch.setattr(MqttDialect, "encode", counted)
    return calls
