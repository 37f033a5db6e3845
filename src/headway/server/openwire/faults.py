"""Faults: what a client is told when something is refused. JMS's clients throw an exception of a Java class."""

from __future__ import annotations

from headway.core.base import HeadwayError, Reason, Refused
from headway.wire.openwire.replies import (
    DESTINATION_ERROR,
    FULL_ERROR,
    JMS_ERROR,
    SECURITY_ERROR,
    STATE_ERROR,
)

_CLASSES = {
    Reason.NOT_AUTHORIZED: SECURITY_ERROR,
    Reason.NOT_FOUND: DESTINATION_ERROR,
    Reason.RESOURCE_LOCKED: DESTINATION_ERROR,
    Reason.QUEUE_LENGTH: FULL_ERROR,
    Reason.TOO_MANY_SUBSCRIPTIONS: FULL_ERROR,
    Reason.TOO_MANY_QUEUES: FULL_ERROR,
    Reason.CLIENT_MEMORY: FULL_ERROR,
    Reason.USER_LIMIT: FULL_ERROR,
    Reason.MEMORY_LIMIT: FULL_ERROR,
    Reason.NOT_ALLOWED: STATE_ERROR,
}


class JmsFault(HeadwayError):
    """The client asked for what cannot be had. It gets an exception of a class of its own; the connection goes on."""

    def __init__(self, text: str, java_class: str = JMS_ERROR) -> None:
        super().__init__(text)
        self.java_class = java_class


def class_of(fault: HeadwayError) -> str:
    """Returns the Java class of the exception that tells of a fault."""
    if isinstance(fault, JmsFault):
        return fault.java_class
    if isinstance(fault, Refused):
        return _CLASSES.get(fault.reason, JMS_ERROR)
    return JMS_ERROR


def class_of_reason(reason: Reason) -> str:
    return _CLASSES.get(reason, JMS_ERROR)


