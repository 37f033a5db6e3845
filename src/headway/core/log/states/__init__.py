"""States: the latest record per key of a topic, and the ways to read it."""

from headway.core.log.states.focus import FOCUS_BYTES, Focus
from headway.core.log.states.retained import Retained
from headway.core.log.states.state import State, StateTerms
from headway.core.log.states.state_pass import NO_RECORD, StateEntry, StatePass, share_of
from headway.core.log.states.state_reading import SAVED_RECORD_BYTES, StateReading

__all__ = [
    "Focus", "FOCUS_BYTES", "NO_RECORD", "Retained", "SAVED_RECORD_BYTES", "share_of", "State", "StateEntry",
    "StatePass", "StateReading", "StateTerms",
]
