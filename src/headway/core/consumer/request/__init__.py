"""Requests to connect and to subscribe, with the options of a subscription."""

from headway.core.consumer.request.connect_request import NO_WILL, ConnectRequest, Will
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
    "ConnectRequest", "known_names", "LiveTerms", "NO_OPTIONS", "NO_WILL", "OPTIONS", "parse_options", "PREFIX",
    "QueueTerms", "read_options", "SubscribeRequest", "SubscriptionOptions", "Use", "Will",
]
