"""Message groups: a message says by two properties that it is one of a group, which one consumer of a queue gets."""

from __future__ import annotations

from headway.core.message.record import Properties

GROUP = "JMSXGroupID"
"""The name of the property that names the group, in all protocols; those of JMS have it as a field."""
GROUP_SEQUENCE = "JMSXGroupSeq"
"""The name of the property that numbers the messages of a group; a negative number closes the group."""


def group_of(properties: Properties) -> tuple[str, bool]:
    """Returns the group of a message, and whether the message closes it; an empty one: it is in no group."""
    group = properties.user_value(GROUP) if properties.user else None
    if not group:
        return "", False
    return group, (properties.user_value(GROUP_SEQUENCE) or "").startswith("-")
