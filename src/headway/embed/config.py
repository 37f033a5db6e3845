"""The config of an embedded broker: a file, a text, a dictionary, or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headway.core.base import ConfigError
from headway.server.config import Settings, load_settings, parse_settings
from headway.store.toml import toml_key, value

Config = str | Path | Mapping[str, Any] | None
_VALUES = (str, bool, int, float, Path)


def settings_of(config: Config) -> Settings:
    """Reads the settings. A text with a line break or ``=`` in it is TOML itself; any other is the name of a file.
    Raises ConfigError."""
    if isinstance(config, Mapping):
        _check("", config)
        text = "".join(f"{toml_key(key)} = {value(item)}\n" for key, item in config.items())
        return parse_settings(text, embedded=True)
    if config is None or (isinstance(config, str) and ("\n" in config or "=" in config or not config.strip())):
        return parse_settings(config or "", embedded=True)
    return load_settings(config, embedded=True)


def _check(where: str, item: Any) -> None:
    """Raises ConfigError for what TOML has no value for."""
    if isinstance(item, Mapping):
        for key, inner in item.items():
            if not isinstance(key, str):
                raise ConfigError(f"{where or 'config'}: the key {key!r} is no text")
            _check(f"{where}.{key}" if where else key, inner)
    elif isinstance(item, list | tuple):
        for number, inner in enumerate(item, 1):
            _check(f"{where}[{number}]", inner)
    elif not isinstance(item, _VALUES):
        raise ConfigError(f"{where}: TOML has no value for a {type(item).__name__}; leave the key out for its default")
