"""Presets: configurations that treat slow consumers as another system does by default. Each is a file beside this one,
and the judge's set and the lab take their policies from there, too."""

from __future__ import annotations

from functools import cache
from importlib import resources

from headway.core.base import unknown

PRESETS = ("xap", "amps", "activemq", "a-mq", "qpid", "rabbitmq", "redis", "nats", "mosquitto")


@cache
def preset_text(name: str) -> str:
    """Returns the TOML of a preset. Raises ConfigError."""
    if name not in PRESETS:
        raise unknown("preset", name, PRESETS)
    return resources.files(__name__).joinpath(f"{name}.toml").read_text(encoding="utf-8")
