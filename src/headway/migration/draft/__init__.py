"""The configuration in the making: tables with the source of each key, and what has no counterpart."""

from headway.migration.draft import units
from headway.migration.draft.draft import Draft, Option, Outcome, Result
from headway.migration.draft.listeners import TELL, Keyed, ListenerDraft, PolicyDraft, discard, rule, said, uncovered
from headway.migration.draft.units import SoAnyway, Unreadable, from_dotted, from_words, queue_filter

__all__ = [
    "discard", "Draft", "from_dotted", "from_words", "Keyed", "ListenerDraft", "Option", "Outcome", "PolicyDraft",
    "queue_filter", "Result", "rule", "said", "SoAnyway", "TELL", "uncovered", "units", "Unreadable",
]
