"""A request to subscribe, with its options: what a client asks for."""

from headway.core.consumer.request.option_table import OPTIONS, PREFIX, Use, known_names, read_options
from headway.core.consumer.request.options import (
    NO_OPTIONS,
    LiveTerms,
    QueueTerms,
    SubscribeRequest,
    SubscriptionOptions,
    parse_options,
)

__all__ = [
    "known_names", "LiveTerms", "NO_OPTIONS", "OPTIONS", "parse_options", "PREFIX", "QueueTerms", "read_options",
    "SubscribeRequest", "SubscriptionOptions", "Use",
]
