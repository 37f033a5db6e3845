"""Faults: what a client is told when something is refused. JMS's clients throw an exception of a Java class."""

from __future__ import annotations

from headway.core.base import HeadwayError, Reason, Refused
from headway.wire.openwire import replies

_CLASSES = {
    Reason.NOT_AUTHORIZED: replies.SECURITY_ERROR,
    Reason.NOT_FOUND: replies.DESTINATION_ERROR,
    Reason.RESOURCE_LOCKED: replies.DESTINATION_ERROR,
    Reason.NOT_ALLOWED: replies.STATE_ERROR,
} | dict.fromkeys((
    Reason.QUEUE_LENGTH, Reason.TOO_MANY_SUBSCRIPTIONS, Reason.TOO_MANY_QUEUES, Reason.CLIENT_MEMORY, Reason.USER_LIMIT,
    Reason.MEMORY_LIMIT,
), replies.FULL_ERROR)  # fmt: skip


class JmsFault(HeadwayError):
    """The client asked for what cannot be had. It gets an exception of a class of its own; the connection goes on."""

    def __init__(self, text: str, java_class: str = replies.JMS_ERROR) -> None:
        super().__init__(text)
        self.java_class = java_class


def class_of(fault: HeadwayError) -> str:
    """Returns the Java class of the exception that tells of a fault."""
    if isinstance(fault, JmsFault):
        return fault.java_class
    return class_of_reason(fault.reason) if isinstance(fault, Refused) else replies.JMS_ERROR


def class_of_reason(reason: Reason) -> str:
    return _CLASSES.get(reason, replies.JMS_ERROR)


