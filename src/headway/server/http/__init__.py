"""HTTP: access control, quotas, and the forms of requests and answers."""

from headway.server.http.access import (
    DATA,
    HEALTH,
    IDENTITY,
    PUBLIC,
    USER,
    VOUCHED,
    AccessControl,
    address_of,
    below,
)
from headway.server.http.asked_configs import AskedConfigs, Seats, asker_of, work_of_choosing
from headway.server.http.bodies import (
    Quota,
    Refusal,
    abort,
    is_gone,
    json_answer,
    read_body,
    read_json,
    refusal_for,
    unsent_bytes,
)
from headway.server.http.http_listener import HttpListener

__all__ = [
    "abort", "AccessControl", "address_of", "AskedConfigs", "asker_of", "below", "DATA", "HEALTH", "HttpListener",
    "IDENTITY", "is_gone", "json_answer", "PUBLIC", "Quota", "read_body", "read_json", "Refusal", "refusal_for",
    "Seats", "unsent_bytes", "USER", "VOUCHED", "work_of_choosing",
]
