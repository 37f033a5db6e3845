"""Helpers of the tests of the configuration."""

from __future__ import annotations

import pytest

from headway.server.config.reading import parse_settings
from headway.store.toml import BadConfig

MQTT = '[listeners.mqtt]\nurl = "mqtt://127.0.0.1:1883"\n'
HASH = "$scrypt$ln=15,r=8,p=1$Inpeda/VE2TJAGgWuw5KMg$LrHx2xusAfWmfVJXLx32zd+DQqTf2uQnEJujgcJ7xDU"


def mistakes(text: str) -> list[str]:
    with pytest.raises(BadConfig) as caught:
        parse_settings(text)
    assert caught.value.lines == str(caught.value).splitlines()
    return caught.value.lines
