"""Records as JSON objects. Data that is no text is in base64, in a field whose name ends in ``_base64``."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from headway.core.message import Properties


def properties_form(said: Properties, qos: int, *, retain: bool) -> dict[str, Any]:
    """Returns the properties that are set."""
    found: dict[str, Any] = {"qos": qos, "retain": retain}
    if said.content_type is not None:
        found["content_type"] = said.content_type
    if said.response_topic is not None:
        found["response_topic"] = said.response_topic
    if said.correlation_data is not None:
        found |= text_form("correlation_data", said.correlation_data)
    if said.user:
        found["user"] = list(said.user)
    return found


def text_form(name: str, data: bytes) -> dict[str, str]:
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data).decode()}
