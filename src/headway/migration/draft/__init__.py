"""The configuration in the making: tables with the source of each key, and what has no counterpart."""

from headway.migration.draft import units
from headway.migration.draft.draft import Draft
from headway.migration.draft.listeners import ListenerDraft
from headway.migration.draft.names import from_dotted, from_words, queue_filter
from headway.migration.draft.option import Option, Outcome, Result
from headway.migration.draft.policies import TELL, PolicyDraft, discard, rule, uncovered
from headway.migration.draft.tables import Keyed, said
from headway.migration.draft.units import SoAnyway, Unreadable

__all__ = [
    "discard", "Draft", "from_dotted", "from_words", "Keyed", "ListenerDraft", "Option", "Outcome", "PolicyDraft",
    "queue_filter", "Result", "rule", "said", "SoAnyway", "TELL", "uncovered", "units", "Unreadable",
]
