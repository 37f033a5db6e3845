"""HTTP: who may ask, how much, and how answers look."""

from headway.server.http.access import IDLE_S, USER, AccessControl
from headway.server.http.bodies import Refusal, json_answer, read_body, read_text
from headway.server.http.quota import Quota

__all__ = [
    "AccessControl", "IDLE_S", "json_answer", "Refusal", "Quota", "read_body", "read_text", "USER",
]
