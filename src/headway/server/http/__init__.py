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
from headway.server.http.asked_configs import AskedConfigs, work_of_choosing
from headway.server.http.bodies import Refusal, json_answer, read_body, read_json, refusal_for
from headway.server.http.http_listener import HttpListener
from headway.server.http.quota import Quota
from headway.server.http.seats import Seats, asker_of
from headway.server.http.transports import abort, is_gone, unsent_bytes

__all__ = [
    "abort", "AccessControl", "address_of", "AskedConfigs", "asker_of", "below", "DATA", "HEALTH", "HttpListener",
    "IDENTITY", "is_gone", "json_answer", "PUBLIC", "Quota", "read_body", "read_json", "Refusal", "refusal_for",
    "Seats", "unsent_bytes", "USER", "VOUCHED", "work_of_choosing",
]
