"""Assembly of the broker from its settings."""

from __future__ import annotations

from headway.core.broker import Broker
from headway.core.log import Pool, Retained, Shares
from headway.core.policy import FlapControl
from headway.core.routing import Limits
from headway.server.config.settings import Settings


def make_broker(settings: Settings) -> Broker:
    """Makes the broker that the settings describe."""
    limits = {
        name: Limits(
            subscriptions_per_session_max=table.subscriptions_max,
            session_expiry_max_s=table.session_expiry_max_s,
            in_flight_max=table.in_flight_max,
            shares=settings.shares[name] if settings.shares_pool(name) else None,
        )
        for name, table in settings.listeners.items()
    }
    made: dict[str, Pool] = {}
    for name, sizes in settings.pools.items():
        shares = Shares(1.0, 1.0) if sizes.topic else settings.shares[name]  # a topic's pool may be one queue's
        made[name] = Pool(name or "global", sizes.memory_bytes, sizes.disk_bytes, shares.client,
                          user_share=shares.user, connection=shares.connection, topic=sizes.topic,
                          biggest_client_first=sizes.biggest_client_first)  # fmt: skip
    flap, retained = settings.flap, settings.retained
    broker = Broker(
        {"": Limits(), **limits}, made, settings.policies,
        flap=FlapControl(flap.base_s, flap.max_s, flap.forgive_s),
        retained=Retained(retained.topics_max, retained.bytes_max),
        sessions_max=settings.server.sessions_max,
        sweep_s=settings.server.sweep_s, late_s=settings.server.late_after_s,
        traces=settings.traces.sampling() if settings.traces.enabled else None, priorities=settings.priorities,
    )  # fmt: skip
    for topic in settings.keyed:
        broker.declare_state(topic.terms)
    broker.set_trials(settings.trials)
    return broker
