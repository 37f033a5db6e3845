"""Moves: functions that let an actor do one thing, made from the commands that it says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pamqp import base
from pamqp.commands import Basic, Channel, Confirm, Queue, Tx
from tests.fuzz.amqp_actors import Actor, Step
from tests.server.amqp_stage import method

from headway.core.base.errors import Reason

QUEUES: dict[str, dict[str, Any]] = {
    "plain": {}, "limit": {"x-max-length": 2, "x-overflow": "reject-publish"}, "dead": {},
    "short": {"x-max-length": 1, "x-dead-letter-exchange": "fan"},
    "brief": {"x-message-ttl": 0, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
    "ring": {"x-message-ttl": 0, "x-dead-letter-exchange": ""},
    "order": {"x-max-priority": 3}, "single": {"x-single-active-consumer": True},
    "full": {"x-max-length-bytes": 25, "x-overflow": "reject-publish-dlx", "x-dead-letter-exchange": "to"},
    "slow": {}, "shy": {}, "late": {}, "gate": {}, "idle": {"x-expires": 1500},
    "work": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "ring"},
}  # fmt: skip
EXCHANGES = {"fan": "fanout", "to": "topic", "one": "direct", "head": "headers"}
NAMES = [*QUEUES, "auto", "own"]
MUTE = 16
"""With this number a channel that the server has closed stays so, and what is said on it is for nobody."""
Do = Callable[[Actor, Step], None]


def said(*commands: Callable[[int], base.Frame]) -> Do:
    """On a channel that is open."""

    def do(actor: Actor, step: Step) -> None:
        life = actor.life(step.channel, grants=step.number != MUTE)
        actor.finish(step.channel, life)
        actor.say(step.channel, *(command(step.number) for command in commands))

    return do


def published(key: str | None = None, exchange: str = "", times: int = 1, **more: Any) -> Do:
    def do(actor: Actor, step: Step) -> None:
        life = actor.life(step.channel, grants=step.number != MUTE)
        actor.finish(step.channel, life)
        if step.channel in actor.watch.lives:
            for _ in range(times):
                actor.publish(step.channel, queue(step.number) if key is None else key, exchange, **more)

    return do


def settled(make: Callable[[int], base.Frame], *, multiple: bool = False) -> Do:
    """Some of what was delivered."""

    def do(actor: Actor, step: Step) -> None:
        life = actor.life(step.channel)
        actor.finish(step.channel, life)
        if not life.unsettled:
            return
        at = step.number % len(life.unsettled)
        tag = life.unsettled[at]
        done = life.unsettled[: at + 1] if multiple else [tag]
        if life.transactions:
            life.put_off += done
        life.unsettled = [other for other in life.unsettled if other not in done]
        actor.say(step.channel, make(tag))

    return do


def settled_all(actor: Actor, step: Step) -> None:
    life = actor.life(step.channel)
    actor.finish(step.channel, life)
    if life.transactions:
        life.put_off += life.unsettled
    life.unsettled = []
    life.unsure = True  # it does not know what is on its way
    actor.say(step.channel, Basic.Ack(0, True))


def mistaken(do: Do) -> Do:
    """Settled is what was not delivered."""

    def both(actor: Actor, step: Step) -> None:
        actor.life(step.channel).unsure = True
        do(actor, step)

    return both


def recovered(command: Callable[[bool], base.Frame]) -> Do:
    """All that was not settled. Not while some of it is to be settled at a commit: tests/server has that."""

    def do(actor: Actor, step: Step) -> None:
        life = actor.life(step.channel)
        actor.finish(step.channel, life)
        if not life.put_off:
            actor.say(step.channel, command(True))

    return do


def ended(command: type[base.Frame]) -> Do:
    """A transaction, which begins now if it has not."""

    def do(actor: Actor, step: Step) -> None:
        life = actor.life(step.channel)
        actor.finish(step.channel, life)
        if not life.transactions and not life.confirms:
            actor.say(step.channel, Tx.Select())
        if life.transactions:
            actor.say(step.channel, command())

    return do


def confirm(actor: Actor, step: Step) -> None:
    life = actor.life(step.channel)
    actor.finish(step.channel, life)
    if not life.transactions:
        actor.say(step.channel, Confirm.Select(nowait=step.number > 12))


def of_the_connection(command: base.Frame) -> Do:
    return lambda actor, step: actor.say(0, command)


def bytes_of(data: bytes) -> Do:
    def do(actor: Actor, step: Step) -> None:
        actor.breath += data

    return do


def open_again(actor: Actor, step: Step) -> None:
    actor.life(step.channel)
    actor.say(step.channel, Channel.Open())


def in_the_middle(actor: Actor, step: Step) -> None:
    """A method in the middle of a message."""
    published("plain", parts=1)(actor, step)
    actor.say(step.channel, Basic.Qos())


def vanish(actor: Actor, step: Step) -> None:
    actor.breathe()
    actor.left = True
    actor.client.sock.incoming.append(b"")


def cut_off(actor: Actor, step: Step) -> None:
    """In the middle of a frame."""
    actor.breath += method(1, Basic.Qos())[: 1 + step.number]
    vanish(actor, step)


def stop_reading(actor: Actor, step: Step) -> None:
    actor.client.reads = False


def read_again(actor: Actor, step: Step) -> None:
    actor.client.reads = True


def expel(actor: Actor, step: Step) -> None:
    """An operator ends the connection."""
    actor.breathe()
    session = actor.client.peer.session
    if session is not None:
        house = actor.world.house
        house.broker.expel(session, Reason.ADMIN, "an operator wants it", house.now())
        house.turn_soon()


def time_passes(actor: Actor, step: Step) -> None:
    actor.world.settle()
    actor.world.house.pass_time(0.3 * (step.number % 6 + 1))


def direct_reply(actor: Actor, step: Step) -> None:
    """Ask, wherever the answer is to go."""
    life = actor.life(step.channel)
    if "replies" not in life.silent:
        said(lambda _: Basic.Consume(queue=REPLIES, consumer_tag="replies", no_ack=True))(actor, step)
    published("plain", reply_to=REPLIES)(actor, step)


def answer(actor: Actor, step: Step) -> None:
    """To whoever asked last, if it is still there."""
    asked = [name for name in actor.world.house.queues if name.startswith(REPLIES)]
    if asked:
        said(lambda _: Queue.Declare(queue=asked[-1], passive=True))(actor, step)
        published(asked[-1])(actor, step)


def queue(number: int) -> str:
    return NAMES[number % len(NAMES)]


def exchange(number: int) -> str:
    return [*EXCHANGES, "auto"][number % 5]


def key(number: int) -> str:
    return ["a.b", "a.*", "#", ""][number % 4]


def own_terms(number: int) -> Queue.Declare:
    name = queue(number)
    return Queue.Declare(
        queue=name, arguments=QUEUES.get(name, {}), auto_delete=name == "auto", exclusive=name == "own"
    )  # fmt: skip


def cancelled(actor: Actor, step: Step) -> None:
    """One of the channel's consumers, and then there is something for it."""
    life = actor.life(step.channel)
    actor.finish(step.channel, life)
    if life.consumers:
        tags = sorted(life.consumers)
        actor.say(step.channel, Basic.Cancel(tags[step.number % len(tags)]))
        published(times=2)(actor, step)


def then(do: Do, seconds: float) -> Do:
    """After which some time passes."""

    def both(actor: Actor, step: Step) -> None:
        do(actor, step)
        actor.world.settle()
        actor.world.house.pass_time(seconds)

    return both


def hold_back(actor: Actor, step: Step) -> None:
    """Only one of them, for two could wait for each other."""
    if step.who == 0 and "gate" not in actor.life(step.channel).consumers:
        said(lambda _: Basic.Qos(prefetch_count=1), lambda _: Basic.Consume(queue="gate", consumer_tag="gate"))(
            actor, step
        )
    elif step.who:
        then(published("gate", times=5), 0.5)(actor, step)


def published_and_rejected(actor: Actor, step: Step) -> None:
    published("work")(actor, step)
    said(lambda n: Basic.Get(queue="work"))(actor, step)
    actor.world.settle()
    settled(lambda tag: Basic.Reject(tag, requeue=False))(actor, step._replace(number=-1))


def false_past(actor: Actor, step: Step) -> None:
    """Whoever publishes can say of a message that it died before, and what they like about it."""
    past = PASTS[step.number % len(PASTS)]
    published(["brief", "ring", "short"][step.number % 3], times=2, headers={"x-death": past, "a": 1})(actor, step)


PASTS: list[Any] = [
    [], [{}], 1, "none", {"queue": "ring"}, [1, {"queue": "ring"}], [{"queue": "ring", "reason": 1}],
    [{"queue": "brief", "reason": "expired", "count": "many", "exchange": [None]}],
    [{"queue": "short", "reason": "maxlen", "count": 2**63 - 1}], [{"reason": "rejected", "queue": {}, "exchange": ""}],
]  # fmt: skip
REPLIES = "amq.rabbitmq.reply-to"
