"""A broker inside an asyncio program, and as an ASGI application.

::

    from headway.embed import Broker

    async with Broker() as broker:
        async for record in broker.subscribe("prices/#", conflate="500ms"):
            ...

docs/EMBED.md tells the whole story.
"""

from headway.core.base import ConfigError, HeadwayError, Reason, Refused
from headway.embed.broker import Broker, NotRunning
from headway.embed.publisher import Stopped
from headway.embed.subscription import Ended, Subscription
from headway.wire.program import Delivered, Gap, Mark, Record

__all__ = [
    "Broker", "ConfigError", "Delivered", "Ended", "Gap", "HeadwayError", "Mark", "NotRunning", "Reason", "Record",
    "Refused", "Stopped", "Subscription",
]
