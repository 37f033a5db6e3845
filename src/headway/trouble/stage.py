"""The stage of a run: the broker, the plan, and what all clients of the run share."""

from __future__ import annotations

from random import Random

from headway.trouble.place import Place
from headway.trouble.plan import Plan
from headway.trouble.wires import AmqpDialogue, Dialogue, MqttDialogue


class Stage:
    def __init__(self, place: Place, plan: Plan, run: int) -> None:
        self.place, self.plan = place, plan
        self.run = run
        """The number that the run's records carry."""
        self.random = Random(plan.seed)
        self.mqtt_version = 5
        self.product = ""
        """The broker's name for itself; empty: it does not say."""
        self.trouble_ns: int | None = None
        """When the trouble began, on the monotonic clock."""

    def dialogue(self, name: str) -> Dialogue:
        place = self.place
        if place.protocol == "amqp":
            return AmqpDialogue(name, place.user, place.password, place.virtual_host)
        return MqttDialogue(name, place.user, place.password, self.mqtt_version)
