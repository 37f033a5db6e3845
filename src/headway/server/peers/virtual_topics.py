"""Virtual topics, as ActiveMQ has them by default: the queue ``Consumer.NAME.VirtualTopic.X`` gets what is sent to the
topic ``VirtualTopic.X``, from the time on when somebody first consumes from it. So each NAME has all messages, and its
consumers share them. X may have wildcards: such a queue gets what is sent to all these topics.
"""

from __future__ import annotations

import re

_QUEUE = re.compile(r"Consumer\.[^.*>#]+\.(VirtualTopic\..+)", re.DOTALL)


def virtual_topic_of(queue: str) -> str | None:
    """Returns the name of the topic whose messages a queue of this name gets; None: of none."""
    found = _QUEUE.fullmatch(queue)
    return None if found is None else found[1]
