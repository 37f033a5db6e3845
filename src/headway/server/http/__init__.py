"""HTTP: who may ask, how much, and how answers look."""

from headway.server.http.bodies import Refusal, json_answer, read_body, read_text
from headway.server.http.gate import IDLE_S, USER, Gate
from headway.server.http.quota import Quota

__all__ = [
    "Gate", "IDLE_S", "json_answer", "Refusal", "Quota", "read_body", "read_text", "USER",
]
