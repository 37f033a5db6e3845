"""How pretended clients subscribe: to what, with which options, and what each should be sent from then on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sim.chance import FILTERS, KEYS, SELECTOR, TOPICS
from tests.sim.model import GroupModel, SubModel

from headway.core.consumer.request import SubscribeRequest, SubscriptionOptions
from headway.core.message.topics import matches, parse_shared_filter
from headway.wire.mqtt.dialect import MqttDialect

if TYPE_CHECKING:
    from tests.sim.client import Client

SHARED = MqttDialect(5, 2, None, True, False)


def pick_filter(client: Client) -> str | None:
    rng = client.world.rng
    full = rng.choice(FILTERS)
    if rng.random() < 0.2:
        full = f"$share/{rng.choice('gh')}/{full}"
    elif rng.random() < 0.03:
        full = "$SYS/#"
    if client.marks:
        return full
    inner = (parse_shared_filter(full) or ("", full))[1]
    for model in client.models:
        if model.live and model.subscription.filter != full and any(
            matches(model.filter, topic) and matches(inner, topic) for topic in TOPICS
        ):
            return None
    return full


def _options(client: Client) -> SubscriptionOptions:
    rng, world = client.world.rng, client.world
    if client.version == 4 or rng.random() < 0.4:
        return SubscriptionOptions()
    # What a timer makes due is judged in the same tick, so whoever is to look healthy must take it at once.
    interval_s = None if client.manner.healthy and client.capacity < 10**6 else 0.3
    names = [policy.name for policy in world.broker.registry.policies]
    return SubscriptionOptions(
        conflate_s=rng.choice((None, None, None, 0.0, interval_s)),
        snapshot=rng.random() < 0.3,
        policy=rng.choice(names) if names and rng.random() < 0.3 else None,
        start=rng.choice(("end", "end", "end", "earliest", str(rng.randint(0, world.broker.registry.sequence)))),
        key=rng.choice((None, *KEYS)),
        selector=SELECTOR if rng.random() < 0.2 else None,
        offsets=rng.random() < 0.3,
        expiries=len(client.name) % 2 == 0,
    )


def subscribe(client: Client, full: str, request: SubscribeRequest | None = None) -> None:
    world, session, stream, rng = client.world, client.session, client.stream, client.world.rng
    assert session is not None
    assert stream is not None
    shared = parse_shared_filter(full)
    identifier = 1 + FILTERS.index(full) if client.marks and full in FILTERS else 99 if client.marks else None
    if client.marks and shared:
        identifier = 100 + FILTERS.index(shared[1]) + 20 * "gh".index(shared[0])
    if request is None:
        options = _options(client)
        qos, keep = rng.choice((0, 0, 1, 2)), rng.random() < 0.2
        dialect = MqttDialect(client.version, qos, identifier, keep and client.version == 5, options.offsets)
        request = SubscribeRequest(
            full, dialect, SHARED, qos,
            no_local=not shared and client.version == 5 and rng.random() < 0.2,
            retain_as_published=dialect.retain_as_published,
            send_retained="never" if shared or keep else rng.choice(("always", "new", "never")),
            options=options,
        )
    old = session.subscriptions.get(full)
    began = (stream.number, stream.boundary)
    retained = world.retained_for(full if shared is None else "")
    subscription = world.broker.subscribe(session, request, world.now)
    world.reap(client.name, began)
    world.note("subscribed", client.name, full, request.qos)
    if rng.random() < 0.5:
        client.write(stream.replies.suback(1, [request.qos]))
    if subscription is old:
        for model in client.models:
            if model.subscription is old:
                model.qos, model.renewed = request.qos, True
        return
    start = world.broker.registry.sequence
    model = SubModel(world.history, start, subscription, shared[1] if shared else full, identifier, began)
    if request.send_retained == "always" or (request.send_retained == "new" and old is None):
        model.retained = retained
    if old is not None and not old.ended:
        older = next(m for m in client.models if m.subscription is old)
        model.replaced, older.replaced_by, older.ended = older, model, began
        model.owed_by_older = model.subscription.conflation.owed_records
    client.models.append(model)
    world.models.append(model)
    world.active.append(model)
    if shared:
        group = world.groups.get(subscription.feed)
        if group is None:
            group = world.groups[subscription.feed] = GroupModel(world.history, model.filter, model.selector, start)
        group.members.append(model)
        model.shared = group


def unsubscribe(client: Client) -> None:
    live = [model for model in client.models if model.live]
    if live and client.stream is not None and client.session is not None:
        model = client.world.rng.choice(live)
        client.world.note("unsubscribed", client.name, model.subscription.filter)
        assert client.world.broker.unsubscribe(client.session, model.subscription.filter, client.world.now)
        client.world.reap()
