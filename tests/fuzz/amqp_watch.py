"""Watch: what one AMQP client says and hears, and whether that is right."""

from __future__ import annotations

from collections import Counter, deque
from math import inf
from typing import Any, NamedTuple

from pamqp import base, heartbeat
from pamqp.commands import Basic, Channel, Confirm, Connection, Exchange, Queue, Tx
from tests.server.amqp_stage import Content


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
    506: {Nothing, Tx.Commit},
}  # fmt: skip
"""With these a channel is closed, on account of these methods. The last is a hard one, for whoever is too slow, and for
a commit for which a queue has no room."""
SETTLING = {Basic.Ack.index, Basic.Nack.index, Basic.Reject.index}
HARD = {320, 501, 502, 503, 504, 505, 506, 530, 540}
"""541 would be a bug of ours."""
NOWHERE = "nowhere"
"""There is no such queue."""


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
        assert about != Tx.Commit.index or life.committed_nothing or item.reply_code == 506, said

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
