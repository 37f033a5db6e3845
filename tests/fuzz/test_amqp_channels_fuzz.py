"""Whatever clients do, in whatever order: each is told what the protocol has for it, nothing else, and nobody else
notices; and when they are gone nothing of them is left.

Theory of operation. Clients take steps that were drawn (``STEPS``). Each knows no more than what it has heard and what
it has said, and that is all that is judged by (``Life``, ``Watch``): until the end the broker is asked nothing but what
it holds to be in flight. Clients keep to the rules about channels, for else they would not live long; what breaks a
rule on purpose is a step like any other.

What goes wrong is told with the shortest plan that it goes wrong with: ``play`` takes it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from functools import cache
from itertools import count, cycle
from math import inf
from random import Random
from typing import Any, NamedTuple

import pytest
from pamqp import base, heartbeat
from pamqp.commands import Basic, Channel, Confirm, Connection, Exchange, Queue, Tx
from tests.server.amqp_stage import ABLE, OPENINGS, Client, Content, House, message, method, raw
from tests.sim.seeds import seeds_of_the_day

from headway.core.base.errors import Reason
from headway.server.connections.linger import LINGER_S

pytestmark = pytest.mark.filterwarnings("ignore:This command is deprecated")

POLICIES = """
[[policy]]
name = "slow"
topics = ["$queue/slow"]
[[policy.rule]]
when = { lag_records = 3 }
then = "disconnect"

[[policy]]
name = "shy"
topics = ["$queue/shy"]
[[policy.rule]]
when = { lag_records = 3 }
then = "close_consumer"

[[policy]]
name = "late"
topics = ["$queue/late"]
[[policy.rule]]
when = { ack_age = "1s" }
then = "return"

[[policy]]
name = "gate"
topics = ["$queue/gate"]
[[policy.rule]]
when = { lag_records = 3 }
then = "block_publishers"
"""
MESSAGE_MAX = 9000
IN_FLIGHT_MAX = 30


class Nothing(base.Frame):
    """What is named where the client has done nothing wrong."""


SOFT: dict[int, set[type[base.Frame]]] = {
    311: {Basic.Publish},
    403: {Exchange.Declare, Exchange.Delete, Queue.Declare, Basic.Consume, Basic.Get, Basic.Publish},
    404: {Exchange.Declare, Exchange.Bind, Queue.Declare, Queue.Bind, Queue.Unbind, Queue.Purge, Queue.Delete,
          Basic.Consume, Basic.Get, Basic.Publish},
    405: {Queue.Declare, Queue.Bind, Queue.Unbind, Queue.Purge, Queue.Delete, Basic.Consume, Basic.Get},
    406: {Exchange.Declare, Queue.Declare, Queue.Bind, Queue.Delete, Basic.Consume, Basic.Ack, Basic.Nack,
          Basic.Publish, Confirm.Select, Tx.Select, Tx.Commit, Tx.Rollback},
    506: {Nothing},
}  # fmt: skip
"""With these a channel is closed, on account of these methods. The last is a hard one, and for whoever is too slow."""
SETTLING = {Basic.Ack.index, Basic.Nack.index, Basic.Reject.index}
HARD = {320, 501, 502, 503, 504, 505, 506, 530, 540}
"""541 would be a bug of ours."""
SEEDS = 150
BLOCKS = sorted({seed // SEEDS for seed in seeds_of_the_day(range(3 * SEEDS))})
"""Each has so many seeds."""
NEVER_OPENED = 9
NOWHERE = "nowhere"
"""There is no such queue."""


# -- what a client may be told -----------------------------------------------------------------------------------------


class Asked(NamedTuple):
    """A method that is to be answered by one of these."""

    answers: tuple[type[base.Frame], ...]
    about: str | None = None
    """The consumer tag of the answer, if it is known."""
    no_ack: bool = False
    """What comes need not be settled."""


ANSWERS: dict[type[base.Frame], tuple[type[base.Frame], ...]] = {
    Channel.Open: (Channel.OpenOk,), Channel.Close: (Channel.CloseOk,), Channel.Flow: (Channel.FlowOk,),
    Exchange.Declare: (Exchange.DeclareOk,), Exchange.Delete: (Exchange.DeleteOk,), Exchange.Bind: (Exchange.BindOk,),
    Exchange.Unbind: (Exchange.UnbindOk,), Queue.Declare: (Queue.DeclareOk,), Queue.Bind: (Queue.BindOk,),
    Queue.Unbind: (Queue.UnbindOk,), Queue.Purge: (Queue.PurgeOk,), Queue.Delete: (Queue.DeleteOk,),
    Basic.Qos: (Basic.QosOk,), Basic.Consume: (Basic.ConsumeOk,), Basic.Cancel: (Basic.CancelOk,),
    Basic.Get: (Basic.GetOk, Basic.GetEmpty), Basic.Recover: (Basic.RecoverOk,), Confirm.Select: (Confirm.SelectOk,),
    Tx.Select: (Tx.SelectOk,), Tx.Commit: (Tx.CommitOk,), Tx.Rollback: (Tx.RollbackOk,),
}  # fmt: skip


class Life:
    """One channel from its open to its end."""

    def __init__(self) -> None:
        self.asked: deque[Asked] = deque()
        self.said: set[int] = {0}
        """Indexes of the methods that were said on it."""
        self.closing = False
        """The client has said that it closes."""
        self.closed = False
        """The server has said so, and the client has not granted it."""
        self.consumers: set[str] = set()
        self.fading: set[str] = set()
        """Cancelled, and no answer was wanted."""
        self.silent: set[str] = set()
        """Consumers that want no acks."""
        self.last_tag = 0
        self.unsettled: list[int] = []
        self.put_off: list[int] = []
        """Settled in a transaction that has not ended."""
        self.unsure = False
        """It has settled what it was not sent, or it cannot know what there is to be settled."""
        self.transactions = False
        self.committed_nothing = False
        """It has committed where there were no transactions."""
        self.confirms = False
        self.numbers: dict[bytes, int] = {}
        """Of messages, from the first that is to be confirmed."""
        self.confirmed = 0
        self.may_return: set[bytes] = set()
        self.must_return: set[bytes] = set()
        self.rest: list[bytes] = []
        """Frames of a message that was said in part."""


class Watch:
    """What one client says and hears, and whether that is right."""

    def __init__(self, bodies: set[bytes], heard: Counter[str], *, able: bool) -> None:
        self.heard = heard
        self.able = able
        """It understands that consumers are cancelled, and that it is to slow down."""
        self.bodies = bodies
        """All that were ever published."""
        self.lives: dict[int, Life] = {}
        self.asked: deque[type[base.Frame]] = deque()
        """On the connection."""
        self.over = False
        self.blocked = False

    # -- what it says -----------------------------------------------------------------------------------------------

    def says(self, channel: int, command: base.Frame) -> None:
        if channel == 0:
            if isinstance(command, Connection.Close):
                self.asked.append(Connection.CloseOk)
            elif isinstance(command, Connection.UpdateSecret):
                self.asked.append(Connection.UpdateSecretOk)
            return
        if isinstance(command, Channel.Open) and channel not in self.lives:
            self.lives[channel] = Life()
        life = self.lives.get(channel)
        if life is None:
            return
        life.said.add(command.index)
        if isinstance(command, Channel.CloseOk) and life.closed:
            del self.lives[channel]
        elif isinstance(command, Channel.Close):
            life.closing = True
            life.asked.append(Asked((Channel.CloseOk,)))
        elif not life.closed:
            self._asks(life, command)

    def _asks(self, life: Life, command: Any) -> None:
        match command:
            case Basic.Consume():
                life.silent |= {command.consumer_tag} if command.no_ack else set()
                if command.nowait:
                    life.consumers.add(command.consumer_tag)
                    life.fading.discard(command.consumer_tag)
            case Basic.Cancel(nowait=True):
                life.fading.add(str(command.consumer_tag))
            case Basic.Recover() | Basic.RecoverAsync():
                life.unsettled.clear()
                life.unsure |= isinstance(command, Basic.RecoverAsync)
            case Confirm.Select():
                life.confirms = not life.transactions
            case Tx.Select():
                life.transactions = not life.confirms
            case Tx.Commit():
                life.committed_nothing |= not life.transactions
            case Tx.Rollback():
                life.unsettled += life.put_off
        if isinstance(command, Tx.Commit | Tx.Rollback):
            life.put_off = []
        answers = ANSWERS.get(type(command))
        if answers is not None and not getattr(command, "nowait", False):
            tag = getattr(command, "consumer_tag", None) or None
            life.asked.append(Asked(answers, tag, getattr(command, "no_ack", False)))

    def publishes(self, channel: int, key: str, text: bytes, *, mandatory: bool, immediate: bool) -> None:
        self.bodies.add(text)
        life = self.lives[channel]
        if life.confirms:
            life.numbers[text] = len(life.numbers) + 1
        if mandatory or immediate:
            life.may_return.add(text)
        if mandatory and key == NOWHERE and not life.transactions:
            life.must_return.add(text)

    # -- what it hears ----------------------------------------------------------------------------------------------

    def hears(self, channel: int, item: Any) -> None:
        name = item.method.name if isinstance(item, Content) else item.name
        self.heard[name] += 1
        assert not self.over, f"{name} after the end"
        if channel == 0:
            self._of_the_connection(item)
            return
        life = self.lives.get(channel)
        assert life is not None, f"{name} on channel {channel}, which is not open"
        if isinstance(item, Channel.CloseOk):
            assert life.asked, "a close granted that was not asked for"
            assert life.asked.popleft().answers == (Channel.CloseOk,)
            if not life.closed:
                del self.lives[channel]
            return
        assert not life.closed, f"{name} between the close and its ok"
        if isinstance(item, Channel.Close):
            self._close(life, item)
            life.closed = True
            life.asked = deque(asked for asked in life.asked if asked.answers == (Channel.CloseOk,))
            self.heard[f"{name} {item.reply_code}"] += 1
        elif isinstance(item, Content):
            self._content(life, item)
        else:
            self._of_a_channel(life, item)

    def _close(self, life: Life, item: Channel.Close) -> None:
        """It is for something that was said, and that may be a mistake."""
        about, said = (item.class_id or 0) << 16 | (item.method_id or 0), (item.reply_code, item.reply_text)
        assert item.reply_code in SOFT, said
        assert about in life.said, said
        assert about in {kind.index for kind in SOFT[item.reply_code]}, said
        assert about not in SETTLING or life.unsure, said
        assert about != Tx.Commit.index or life.committed_nothing, said

    def _of_the_connection(self, item: Any) -> None:
        match item:
            case Connection.Close():
                assert item.reply_code in HARD, (item.reply_code, item.reply_text)
                self.over = True
                self.heard[f"{item.name} {item.reply_code}"] += 1
            case Connection.CloseOk():
                assert self.asked.popleft() is Connection.CloseOk
                self.over = True
            case Connection.UpdateSecretOk():
                assert self.asked.popleft() is Connection.UpdateSecretOk
            case Connection.Blocked() | Connection.Unblocked():
                assert self.able
                assert self.blocked == isinstance(item, Connection.Unblocked)
                self.blocked = not self.blocked
            case heartbeat.Heartbeat():
                pass
            case _:
                raise AssertionError(f"{item.name} on the connection")

    def _of_a_channel(self, life: Life, item: Any) -> None:
        match item:
            case Basic.Ack() | Basic.Nack():
                first, last = life.confirmed + 1, item.delivery_tag
                assert last >= first if item.multiple else last == first, (first, last, item.multiple)
                assert last <= len(life.numbers)
                life.confirmed = last
            case Basic.Cancel():
                assert self.able
                assert item.nowait
                assert item.consumer_tag in life.consumers
                life.consumers.discard(item.consumer_tag)
            case _:
                self._answer(life, item)

    def _answer(self, life: Life, item: Any) -> Asked:
        assert life.asked, f"{item.name}, which nothing asked for"
        asked = life.asked.popleft()
        assert type(item) in asked.answers, (item.name, asked)
        if isinstance(item, Basic.ConsumeOk | Basic.CancelOk):
            assert item.consumer_tag == asked.about or (asked.about is None and item.consumer_tag)
        if isinstance(item, Basic.RecoverOk):
            life.unsettled.clear()
        elif isinstance(item, Basic.ConsumeOk):
            life.consumers.add(str(item.consumer_tag))
        elif isinstance(item, Basic.CancelOk):
            life.consumers.discard(item.consumer_tag)
            life.silent.discard(item.consumer_tag)
        return asked

    def _content(self, life: Life, item: Content) -> None:
        said = item.method
        assert item.body in self.bodies
        if isinstance(said, Basic.Return):
            assert said.reply_code in (312, 313)
            assert item.body in life.may_return
            life.may_return.discard(item.body)
            life.must_return.discard(item.body)
            assert life.numbers.get(item.body, inf) > life.confirmed, "confirmed before it was returned"
            return
        assert said.delivery_tag == life.last_tag + 1
        life.last_tag += 1
        if isinstance(said, Basic.GetOk):
            no_ack = self._answer(life, said).no_ack
        else:
            assert said.consumer_tag in life.consumers, f"a delivery to {said.consumer_tag!r}, which is no consumer"
            no_ack = said.consumer_tag in life.silent
        if not no_ack:
            life.unsettled.append(said.delivery_tag)

    def rest(self) -> None:
        """Everything was heard that there was to hear."""
        if self.over:
            return
        assert not self.asked, f"no {self.asked[0].name}"
        for channel, life in self.lives.items():
            assert not life.asked, f"channel {channel}: no {life.asked[0]}"
            assert not life.closing or life.closed
            life.consumers -= life.fading
            life.fading.clear()
            if life.closed or life.rest:
                continue
            assert life.confirmed == len(life.numbers), f"{len(life.numbers) - life.confirmed} are not confirmed"
            assert not life.must_return, "a mandatory message was not returned"


# -- clients -----------------------------------------------------------------------------------------------------------


class Step(NamedTuple):
    what: str
    who: int = 0
    channel: int = 1
    number: int = 0
    """Which of several."""
    waits: bool = True
    """For what comes of it; else the next is said in the same breath."""


class Actor:
    """A client that takes steps. When its connection is over the next step is on a new one."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.name = f"actor {number}"
        self.breath = b""
        """What was not said yet."""
        self.connect()

    def connect(self) -> None:
        able = bool(self.world.drawn() % 2)
        self.watch = Watch(self.world.bodies, self.world.heard, able=able)
        self.client = Client(self.world.house, self.name, able=ABLE if able else (), channels=0)
        self.client.sock.capacity = 5000
        self.at = len(self.client.heard)
        self.left = False
        """It has hung up itself."""
        self.breath = b""

    @property
    def gone(self) -> bool:
        return self.watch.over or not self.client.open

    # -- out --------------------------------------------------------------------------------------------------------

    def say(self, channel: int, *commands: base.Frame) -> None:
        for command in commands:
            self.watch.says(channel, command)
            self.breath += method(channel, command)

    def breathe(self) -> None:
        """Say what there is to say, in pieces; hear what comes of it."""
        data, self.breath = self.breath, b""
        if self.client.open:
            while data:
                size = next(self.world.sizes)
                self.client.sock.incoming.append(data[:size])
                data = data[size:]
        self.world.house.run()

    def hear(self) -> None:
        """Also at the end of a turn somebody else is the cause of."""
        if not self.client.reads:
            return
        self.client.run()
        for channel, item in self.client.heard[self.at :]:
            self.watch.hears(channel, item)
        self.at = len(self.client.heard)
        assert self.client.open or self.left or self.watch.over, "it was hung up on without a word"
        if self.up_to_date:
            self.watch.rest()

    @property
    def up_to_date(self) -> bool:
        """Nothing is on its way, in either direction."""
        client = self.client
        out = self.breath or client.sock.incoming or client.connection.reading_paused_by
        return client.open and client.reads and not out and not client.connection.blocked

    def life(self, channel: int, *, grants: bool = True) -> Life:
        """The channel, opened if need be."""
        life = self.watch.lives.get(channel)
        if life is not None and life.closing and life.asked:
            self.client.reads = True
            self.world.settle()
            life = self.watch.lives.get(channel)
        if life is not None and life.closed and grants:
            self.say(channel, Channel.CloseOk())
            life = None
        if life is None and not self.gone:
            self.say(channel, Channel.Open())
        return self.watch.lives.get(channel) or Life()

    def finish(self, channel: int, life: Life) -> None:
        """What was said in part is said to its end."""
        self.breath += b"".join(life.rest)
        life.rest = []

    def publish(
        self, channel: int, key: str, exchange: str = "", *, size: int = 10, parts: int = 99, **more: Any
    ) -> None:
        text = f"{next(self.world.numbers)} ".encode().ljust(size, b".")
        frames = message(channel, key, text, exchange, **more)
        life = self.watch.lives[channel]
        life.said.add(Basic.Publish.index)
        self.breath += b"".join(frames[:parts])
        life.rest = frames[parts:]
        if not life.closed:
            self.watch.publishes(channel, key, text, mandatory="mandatory" in more, immediate="immediate" in more)


class World:
    def __init__(self, sizes: list[int], drawn: Callable[[], int]) -> None:
        self.house = House(POLICIES)
        table = self.house.settings.listeners["amqp"]
        limits = {"packet_bytes_given": MESSAGE_MAX, "in_flight_given": IN_FLIGHT_MAX}
        self.house.settings.listeners["amqp"] = table.model_copy(update=limits)
        self.sizes = cycle(sizes or [1 << 20])
        self.drawn = drawn
        self.bodies: set[bytes] = set()
        self.heard: Counter[str] = Counter()
        self.numbers = count(1)
        self.consumed: set[Any] = set()
        """Queues that have had a consumer."""
        first = Client(self.house, "first")
        for name, arguments in QUEUES.items():
            first.declare(name, arguments)
        for name, kind in EXCHANGES.items():
            assert first.say(Exchange.Declare(exchange=name, exchange_type=kind)) == ["1 Exchange.DeclareOk"]
        for name in ("plain", "limit"):
            first.say(Queue.Bind(queue=name, exchange="fan"), Queue.Bind(queue=name, exchange="to", routing_key="#"))
        first.leave()
        self.actors = [Actor(self, number) for number in range(3)]

    def settle(self) -> None:
        for actor in self.actors:
            actor.breathe()
        self.house.run()
        for actor in self.actors:
            actor.hear()
        for actor in self.actors:
            credit_is_counted(actor)
        self.consumed |= {queue for queue in self.house.queues.values() if queue.members.consumers}

    def take(self, step: Step) -> None:
        actor = self.actors[step.who]
        if actor.gone:
            self.settle()
            actor.connect()
        STEPS[step.what](actor, step)
        if step.waits:
            self.settle()


# -- steps -------------------------------------------------------------------------------------------------------------

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
NUMBERS = [0, 0, 0, 0, 0, 1, 2, *range(17)]
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
GOOD: dict[str, Do] = {
    "close channel": said(lambda _: Channel.Close(200, "", 0, 0)),
    "flow off": said(lambda _: Channel.Flow(False)),
    "flow on": said(lambda _: Channel.Flow(True)),
    "flow ok": said(lambda _: Channel.FlowOk(True)),
    "exchange": said(lambda n: Exchange.Declare(exchange="more", exchange_type="fanout", nowait=n > 12)),
    "exchange, passive": said(lambda n: Exchange.Declare(exchange=exchange(n % 4), passive=True)),
    "exchange, alternate": said(lambda n: Exchange.Declare(
        exchange=f"alt{n}", exchange_type="direct", internal=n == 5, arguments={"alternate-exchange": exchange(n)})),
    "exchange, auto-delete": said(
        lambda n: Exchange.Declare(exchange="auto", exchange_type="fanout", auto_delete=True),
        lambda n: Queue.Bind(queue="plain", exchange="auto"),
    ),
    "delete exchange": said(lambda n: Exchange.Delete(exchange=["auto", "more", "alt1"][n % 3])),
    "bind exchange": said(lambda n: Exchange.Bind(destination=exchange(n % 4), source=exchange(n // 4))),
    "unbind exchange": said(lambda n: Exchange.Unbind(destination=exchange(n % 4), source=exchange(n // 4))),
    "queue": said(own_terms),
    "queue, passive": said(own_terms, lambda n: Queue.Declare(passive=True)),
    "queue, no wait": said(own_terms, lambda n: Queue.Declare(queue=queue(n), passive=True, nowait=True)),
    "queue, exclusive": said(lambda n: Queue.Declare(queue="", exclusive=True), lambda n: Queue.Bind(exchange="fan")),
    "queue, auto-delete": said(
        lambda n: Queue.Declare(queue="auto", auto_delete=True),
        lambda n: Basic.Consume(queue="", consumer_tag=f"a{n}"), lambda n: Basic.Cancel(f"a{n}"),
    ),
    "bind": said(
        lambda n: Queue.Bind(queue=queue(n % 8), exchange=exchange(n // 4), routing_key=key(n), nowait=n > 13)
    ),
    "bind last": said(own_terms, lambda n: Queue.Bind(exchange="to", routing_key="*.b")),
    "bind by headers": said(lambda n: Queue.Bind(
        queue=queue(n % 8), exchange="head", arguments={"x-match": "all" if n % 2 else "any", "a": 1, "b": [1, "x"]})),
    "unbind": said(lambda n: Queue.Unbind(queue=queue(n % 8), exchange=exchange(n // 4), routing_key=key(n))),
    "purge": said(own_terms, lambda n: Queue.Purge(queue="", nowait=n > 12)),
    "delete": said(lambda n: Queue.Delete(queue=queue(16 - n), nowait=n > 12)),
    "delete under its consumer": said(
        lambda n: Queue.Declare(queue=f"brief{n}"), lambda n: Basic.Consume(queue="", consumer_tag=f"b{n}"),
        lambda n: Queue.Delete(queue=""),
    ),
    "qos": said(lambda n: Basic.Qos(prefetch_count=n % 3, global_=n > 8)),
    "consume": said(lambda n: Basic.Consume(queue=queue(n), consumer_tag=f"t{n}")),
    "consume slow": said(
        lambda n: Basic.Qos(prefetch_count=1),
        lambda n: Basic.Consume(queue=["slow", "shy", "late"][n % 3], consumer_tag=f"s{n}"),
    ),
    "consume and hold back": hold_back,
    "consume, no tag": said(lambda n: Basic.Consume(queue=queue(n))),
    "consume, no ack": said(lambda n: Basic.Consume(queue=queue(n), consumer_tag=f"n{n}", no_ack=True)),
    "consume, no wait": said(lambda n: Basic.Consume(queue="plain", consumer_tag=f"w{n}", nowait=True)),
    "cancel": cancelled,
    "cancel nobody": said(lambda n: Basic.Cancel(f"nobody{n}")),
    "cancel, no wait": said(lambda n: Basic.Cancel(f"w{n}", nowait=True)),
    "get": said(lambda n: Basic.Get(queue=queue(n))),
    "get some": said(*[lambda n: Basic.Get(queue="plain")] * 4),
    "get, no ack": said(own_terms, lambda n: Basic.Get(queue="", no_ack=True)),
    "ack": settled(lambda tag: Basic.Ack(tag)),
    "ack upto": settled(lambda tag: Basic.Ack(tag, True), multiple=True),
    "ack all": settled_all,
    "nack": settled(lambda tag: Basic.Nack(tag, requeue=True)),
    "nack upto": settled(lambda tag: Basic.Nack(tag, True, requeue=False), multiple=True),
    "reject": settled(lambda tag: Basic.Reject(tag, requeue=False)),
    "recover": recovered(Basic.Recover),
    "recover, no answer": recovered(Basic.RecoverAsync),
    "recover for itself": recovered(lambda _: Basic.Recover(False)),
    "publish": published(),
    "publish more": published("plain", times=5),
    "publish to slow": then(published("slow", times=6), 0.5),
    "publish to shy": then(published("shy", times=6), 0.5),
    "publish to late": then(published("late"), 1.5),
    "publish to gate": then(published("gate", times=5), 0.5),
    "publish and reject": published_and_rejected,
    "publish with a past": false_past,
    "publish large": published("plain", size=5000),
    "publish a part": published("plain", size=5000, parts=2),
    "publish less": published("plain", parts=1),
    "publish to fan": published("a.b", "fan", delivery_mode=2),
    "publish to topic": published("a.b", "to", mandatory=True),
    "publish by headers": published("", "head", headers={"a": 1}, mandatory=True),
    "publish to limit": published("limit", times=4),
    "publish to full": published("full", times=4),
    "publish to short": published("short", times=3, mandatory=True),
    "publish to none": published(NOWHERE, mandatory=True),
    "publish to nobody": published(NOWHERE, times=2),
    "publish at once": published("plain", times=3, immediate=True),
    "publish for a while": published("order", times=2, expiration="200", priority=2, delivery_mode=2),
    "publish to a topic": published("a.b", "amq.topic"),
    "direct reply": direct_reply,
    "answer": answer,
    "confirm": confirm,
    "commit": ended(Tx.Commit),
    "rollback": ended(Tx.Rollback),
    "new secret": of_the_connection(Connection.UpdateSecret("s", "t")),
    "heartbeat": bytes_of(raw(8, 0, b"")),
}  # fmt: skip
OFTEN = [
    "consume", "consume slow", "consume and hold back", "consume and hold back", "cancel", "get some", "ack",
    "ack upto", "nack", "publish", "publish more", "confirm", "commit",
]  # fmt: skip
SOFT_FAULTS: dict[str, Do] = {
    "exchange, reserved": said(lambda n: Exchange.Declare(exchange="amq.x", exchange_type="fanout")),
    "exchange, otherwise": said(lambda n: Exchange.Declare(exchange="fan", exchange_type="direct")),
    "exchange, none": said(lambda n: Exchange.Declare(exchange="none", passive=True)),
    "delete amq.fanout": said(lambda n: Exchange.Delete(exchange="amq.fanout")),
    "queue, otherwise": said(lambda n: Queue.Declare(queue=queue(n), durable=True)),
    "queue, none": said(lambda n: Queue.Declare(queue="none", passive=True)),
    "queue, reserved": said(lambda n: Queue.Declare(queue="amq.x")),
    "queue, bad": said(lambda n: Queue.Declare(queue="bad", arguments={"x-max-length": -1}, nowait=n > 8)),
    "bind to none": said(lambda n: Queue.Bind(queue="plain", exchange="none")),
    "bind by nothing": said(lambda n: Queue.Bind(queue="plain", exchange="head", arguments={"x-match": "odd"})),
    "delete in use": said(lambda n: Queue.Delete(queue=queue(n), if_unused=True, if_empty=True)),
    "consume alone": said(lambda n: Basic.Consume(queue=queue(n), consumer_tag=f"x{n}", exclusive=True)),
    "consume, bad": said(lambda n: Basic.Consume(queue="plain", arguments={"policy": "none"})),
    "consume, none": said(lambda n: Basic.Consume(queue="none", nowait=n > 8)),
    "consume replies, acked": said(lambda n: Basic.Consume(queue=REPLIES)),
    "get last": said(lambda n: Basic.Get(queue="")),
    "ack unknown": mistaken(said(lambda n: Basic.Ack(1000 + n, n > 8))),
    "nack unknown": mistaken(said(lambda n: Basic.Nack(1000 + n, n > 8))),
    "publish, no exchange": published("x", "no exchange"),
    "publish too large": published("plain", size=MESSAGE_MAX + 1),
    "publish, bad expiration": published("plain", expiration="soon"),
    "publish, other user": published("plain", user_id="somebody"),
    "publish, no reply": published("plain", reply_to=REPLIES),
    "publish to $SYS": published("$SYS", "amq.topic"),
    "confirm or tx": said(lambda n: Confirm.Select() if n % 2 else Tx.Select()),
    "commit nothing": said(lambda n: Tx.Commit() if n % 2 else Tx.Rollback()),
}  # fmt: skip
"""They may close a channel."""
HARD_FAULTS: dict[str, Do] = {
    "close": of_the_connection(Connection.Close(200, "", 0, 0)),
    "start again": of_the_connection(Connection.StartOk()),
    "close ok": of_the_connection(Connection.CloseOk()),
    "open again": open_again,
    "consumer twice": said(*[lambda n: Basic.Consume(queue="plain", consumer_tag="twice")] * 2),
    "exchange, no type": said(lambda n: Exchange.Declare(exchange="x", exchange_type="odd")),
    "qos in bytes": said(lambda n: Basic.Qos(prefetch_size=1)),
    "never opened": bytes_of(method(NEVER_OPENED, Basic.Qos())),
    "not a close": bytes_of(method(NEVER_OPENED, Channel.CloseOk())),
    "a header": bytes_of(raw(2, NEVER_OPENED, bytes(14))),
    "noise": bytes_of(b"GET / HTTP/1.1"),
    "opening": bytes_of(OPENINGS["0-9-1"]),
    "too large a frame": bytes_of(b"\x01\x00\x01\x7f\xff\xff\xff"),
    "a table cut short": bytes_of(raw(1, 1, b"\x00\x32\x00\x0a\x00\x00\x01a\x00\x00\x00\x00\x09\x01b")),
    "in the middle": in_the_middle,
    "vanish": vanish,
    "cut off": cut_off,
    "expel": expel,
}  # fmt: skip
"""They end a connection."""
WORLD: dict[str, Do] = {
    "nothing": lambda actor, step: None,
    "stop reading": stop_reading,
    "read again": read_again,
    "time passes": time_passes,
}  # fmt: skip
STEPS = GOOD | SOFT_FAULTS | HARD_FAULTS | WORLD


class Plan(NamedTuple):
    steps: list[Step]
    sizes: list[int]
    """Of the pieces in which what they say arrives, over and over; empty: all in one."""
    ends: list[int]
    """How each of them ends."""


def drawn(seed: int) -> Plan:
    rng = Random(seed)
    groups = [[*GOOD, *OFTEN * 3], [*SOFT_FAULTS], [*HARD_FAULTS], [*WORLD]]

    def step() -> Step:
        what = rng.choice(rng.choices(groups, [75, 8, 3, 8])[0])
        return Step(
            what, rng.choice([0, 0, 0, 1, 1, 2]), rng.choice([1, 1, 1, 2, 3]), rng.choice(NUMBERS), rng.random() < 0.6
        )

    return Plan(
        [step() for _ in range(rng.randint(10, 70))], [rng.randint(1, 300) for _ in range(rng.randrange(4))],
        [rng.randrange(4) for _ in range(3)],
    )  # fmt: skip


def credit_is_counted(actor: Actor) -> None:
    """Whatever is in flight is counted once for its channel, and once for the connection; and the client knows it."""
    peer, lives = actor.client.peer, actor.watch.lives
    cores = [channel.core for channel in peer.channels.values()]
    for core in cores:
        assert core.used == len(core.in_flight) + len(core.timed_out)
        life = lives.get(core.number)
        if life is not None and not life.unsure and not life.closed and actor.up_to_date:
            assert {*core.in_flight, *core.timed_out} == {*life.unsettled, *life.put_off}
    if peer.session is not None:
        assert peer.session.channel.used == sum(core.used for core in cores)


# -- the end -----------------------------------------------------------------------------------------------------------


def works(house: House) -> Client:
    """Whoever comes now finds everything in order."""
    client = Client(house, "bystander")
    client.declare("bystander")
    assert client.put("bystander", b"1") == []
    assert client.say(Basic.Get(queue="bystander")) == ["1 Basic.GetOk 1 1 0"]
    assert client.say(Basic.Ack(1), Queue.Delete(queue="bystander")) == ["1 Queue.DeleteOk 0"]
    return client


def nothing_is_left(world: World) -> None:
    house = world.house
    registry, router = house.broker.registry, house.broker.registry.router
    assert not registry.sessions
    assert not registry.numbers
    assert not registry.owned
    assert not registry.paused
    assert not house.connections
    for queue in house.queues.values():
        assert queue.owner is None, queue.name
        assert not queue.members, queue.name
        assert not (queue.terms.auto_delete and queue in world.consumed), queue.name
        assert queue.backlog.unacknowledged == 0
    last = Client(house, "last")
    for name in list(house.queues):
        [answer] = last.say(Queue.Delete(queue=name))
        assert answer.startswith("1 Queue.DeleteOk")
    last.leave()
    house.pass_time(0.5)
    assert not router.feeds, list(router.feeds)
    pool = house.broker.registry.pools[""]
    if pool.memory_bytes:  # last words to who does not read
        house.pass_time(LINGER_S)
    assert pool.memory_bytes == 0
    for place in (registry.watched, registry.woken, registry.dirty, registry.unused, house.broker.queues._homes):
        assert not place
    assert not +registry.consumers
    assert not +registry.slow_consumers
    for name, found in router.exchanges.by_name.items():
        assert all(binding.destination.kind == "exchange" for binding in found.bindings.all), name


def play(plan: Plan) -> Counter[str]:
    """What they heard."""
    ends = cycle(plan.ends)
    world = World(plan.sizes, lambda: next(ends))
    for step in plan.steps:
        world.take(step)
    for actor in world.actors:
        actor.client.reads = True
        for channel, life in actor.watch.lives.items():
            actor.finish(channel, life)
    world.settle()
    world.settle()
    bystander = works(world.house)
    for actor, how in zip(world.actors, plan.ends, strict=True):
        if not actor.gone:
            [vanish, STEPS["close"], cut_off, expel][how](actor, Step(""))
        world.settle()
    bystander.leave()
    for actor in world.actors:
        assert actor.gone
        assert not (actor.watch.over and actor.client.tail), "the end of it is not whole"
    nothing_is_left(world)
    return world.heard


def shorter(plan: Plan, error: Exception, tries: int = 300) -> Plan:
    """Fewer steps, after which the same goes wrong."""
    size = len(plan.steps) // 2
    while size and tries > 0:
        at, found = 0, False
        while at < len(plan.steps) and tries > 0:
            tries -= 1
            other = plan._replace(steps=plan.steps[:at] + plan.steps[at + size :])
            if place_of(error_of(other)) == place_of(error):
                plan, found = other, True
            else:
                at += size
        size = size // 2 if size > 1 or not found else 1
    return plan


def error_of(plan: Plan) -> Exception | None:
    try:
        play(plan)
    except Exception as error:  # noqa: BLE001  whatever it is, that it is the same is all that is asked
        return error
    return None


def place_of(error: Exception | None) -> object:
    """Where it was raised."""
    trace = error.__traceback__ if error is not None else None
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return type(error), trace and (trace.tb_frame.f_code, trace.tb_lineno)


@cache
def heard_in(block: int) -> Counter[str]:
    heard: Counter[str] = Counter()
    for seed in range(block * SEEDS, (block + 1) * SEEDS):
        plan = drawn(seed)
        try:
            heard += play(plan)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r} after {shorter(plan, error)}") from error
    return heard


@pytest.mark.parametrize("block", BLOCKS)
def test_whatever_clients_do(block: int) -> None:
    assert heard_in(block)


def test_they_hear_everything_there_is_to_hear() -> None:
    """Or the steps would show little."""
    heard = sum(map(heard_in, BLOCKS), Counter[str]())
    answers = {answer.name for kinds in ANSWERS.values() for answer in kinds}
    others = (Basic.Deliver, Basic.Return, Basic.Ack, Basic.Nack, Basic.Cancel, Connection.Blocked,
              Connection.Unblocked)  # fmt: skip
    codes = {"Channel.Close": (311, 403, 404, 405, 406, 506), "Connection.Close": (320, 501, 502, 503, 504, 505, 540)}
    wanted = {*answers, *(other.name for other in others)}
    wanted |= {f"{name} {code}" for name, known in codes.items() for code in known}
    assert not wanted - set(heard)
