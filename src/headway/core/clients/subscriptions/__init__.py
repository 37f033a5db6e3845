"""Subscriptions to topics, consumers of queues, and polls: how they begin."""

from headway.core.clients.subscriptions.consuming import Consuming
from headway.core.clients.subscriptions.polls import POLLS_PROTOCOL, Polls
from headway.core.clients.subscriptions.starts import Starts
from headway.core.clients.subscriptions.subscribing import Subscribing

__all__ = [
    "Consuming", "Polls", "POLLS_PROTOCOL", "Starts", "Subscribing",
]
