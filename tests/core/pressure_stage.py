"""What the tests of pressure share."""

from __future__ import annotations

from tests.core.stage import Client


def publish_while_read(publisher: Client, turns: int, topic: str = "t", *, published: int = 0) -> int:
    """50 records a turn, as long as the publisher is read. Returns how many came to be published."""
    for _ in range(turns):
        if not publisher.paused:
            publisher.publish(topic, published, 50, size=200, qos=1)
            published += 50
        publisher.stage.run(0.3)
    return published
