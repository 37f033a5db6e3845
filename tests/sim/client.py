"""Pretended clients: they subscribe, read, acknowledge, publish and vanish, each in its own manner."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from math import inf
from operator import itemgetter
from typing import TYPE_CHECKING

from bench.wires.packets import encode_connect, encode_publish
from tests.sim.chance import TOPICS, Manner, payload
from tests.sim.in_rows import in_flight, in_flight_as
from tests.sim.model import SubModel, take_apart
from tests.sim.stream import Frame, Stream, as_publish

from headway.core.base.errors import Reason, Refused
from headway.core.consumer.request import NO_WILL, ConnectRequest, Will
from headway.core.consumer.session import Session
from headway.core.log.durable import HeldBack
from headway.core.message.record import Properties, Record, Run
from headway.core.message.topics import matches
from headway.wire.mqtt.decoder import MqttDecoder
from headway.wire.mqtt.packets import Connect, DisconnectPacket, PubAck, Publish, PublishRun, PubRec, PubRel
from headway.wire.mqtt.replies import Replies

if TYPE_CHECKING:
    from tests.sim.world import World


class HeldBackTo(HeldBack):
    """What waits for the journal when its connection ends counts as sent, as what waits for the socket does."""

    __slots__ = ("_client", "_stream")

    def __init__(self, client: Client, stream: Stream) -> None:
        super().__init__()
        self._client, self._stream = client, stream

    @property
    def all(self) -> bytes:
        return b"".join(bytes(frames) for _, frames in self._frames)

    def clear(self) -> None:
        for frame in self._stream.peek(self.upto(2**62), self._stream.boundary):
            self._client.on_frame(self._stream, frame)


class Client:
    def __init__(self, world: World, number: int, manner: Manner) -> None:
        rng = world.rng
        self.world = world
        self.name = f"client-{number}-{manner.name.replace(' ', '-')}"
        self.manner = manner
        self.version = rng.choice((4, 5, 5))
        self.marks = self.version == 5 and rng.random() < 0.7
        """Its subscriptions carry identifiers, so they may overlap."""
        self.expiry_s = rng.choice((0.0, 0.0, 20.0, 60.0))
        self.credit = rng.choice((1, 2, 5, 20, 65535)) if self.version == 5 else 65535
        self.packet_bytes_max = rng.choice((2**28, 2**28, 300, 2000)) if self.version == 5 else 2**28
        self.capacity = rng.choice((300, 3000, 30_000, 10_000_000))
        self.stream: Stream | None = None
        self.session: Session | None = None
        self.models: list[SubModel] = []
        self.by_id: dict[int, tuple[SubModel, int]] = {}
        """Packet ids in use between the two sides, whatever the connection."""
        self.received: set[int] = set()
        """Ids of exactly-once deliveries that arrived and are not released."""
        self.had: dict[SubModel, set[int]] = {}
        """What its application was given at QoS 2."""
        self.acks: list[tuple[float, int, int]] = []
        self.naps_until_s = 0.0
        self.last_read_s = 0.0
        self.away_until_s = 0.0
        self.paused = False
        self.pauses = 0
        self.packet_id = 0
        self.decoder = MqttDecoder(topic_alias_max=8)

    # -- connections ------------------------------------------------------------------------------------------------

    def connect(self, *, clean: bool | None = None) -> bool:
        world, rng = self.world, self.world.rng
        broker, now = world.broker, world.now
        clean = rng.random() < 0.2 if clean is None else clean
        limit = self.packet_bytes_max if self.version == 5 else None
        packet = Connect(self.version, self.name, clean, receive_max=self.credit, max_packet_bytes=limit)
        replies = Replies.to(packet)
        world.streams += 1
        stream = Stream(world.streams, self.version, replies, now, self.capacity, rng, world.shy, self.packet_bytes_max,
                        self.on_frame)
        request = ConnectRequest(
            self.name, "", clean, self.expiry_s, self.credit, self.packet_bytes_max, None,
            "mqtt5" if self.version == 5 else "mqtt3.1.1", self._will(),
            allowance=world.allowance_of(self),
        )  # fmt: skip
        old = self.stream
        if old is not None:
            self._cut()
        try:
            session = broker.connect(request, stream.outlet, now)
        except Refused as error:
            assert old is None, "refused by flap control while connected"
            self.away_until_s = now + error.retry_after_s
            return False
        world.reap(self.name, (stream.number, 0))
        if old is not None:
            world.carry_out()  # what the old connection still gets comes before anything on the new one
        if session.present:
            assert session is self.session, "another session was found"
        else:
            self._forget()
        # It is read again, also while there is no room; what its earlier connection brought is there all the same.
        world.own_words.update(world.last_reads.pop(self.name, {}))
        self.session = stream.session = session
        self.stream = stream
        session.held_back = HeldBackTo(self, stream)
        world.by_outlet[stream.outlet] = (self, stream)
        self.acks.clear()
        self.paused = False
        self.last_read_s = now
        self.decoder = MqttDecoder(topic_alias_max=8)
        self.decoder.feed(encode_connect(packet))
        self.write(replies.connack(session_present=session.present))
        for delivery_id in session.channel.orphaned_ids:
            self.write(replies.pubrel(delivery_id))
        for delivery_id, delivery in in_flight(session.channel).items():
            if delivery.released:
                self.write(replies.pubrel(delivery_id))
        world.reap()
        return True

    def _will(self) -> Will:
        world, rng = self.world, self.world.rng
        if rng.random() < 0.7:
            return NO_WILL
        record = Record(rng.choice(TOPICS), payload(rng, world.next_number(), 50), Properties(), rng.choice((0, 1, 2)))
        return Will(record, rng.choice((0.0, 0.0, 3.0)), rng.choice((inf, 5.0)))

    def _forget(self) -> None:
        """The server has nothing for the client of an earlier session."""
        left = [model for model in self.models if model.live]  # they end over the turns to come (deferred.py)
        assert all(model.subscription.session.ended for model in left), "subscriptions outlived their session"
        self.by_id.clear()
        self.received.clear()

    def _cut(self) -> None:
        """The connection breaks: nothing more is read from it."""
        for model in self.models:
            if model.live:
                model.cut = True
        self.acks.clear()

    def vanish(self, *, politely: bool = False, expiry_s: float | None = None) -> None:
        stream, session, world = self.stream, self.session, self.world
        assert stream is not None
        assert session is not None
        self._cut()
        for frame in stream.on_their_way():
            self.on_frame(stream, frame)
        session.held_back.upto(2**62)
        stream.outlet.open = False
        self.stream = None
        world.by_outlet.pop(stream.outlet)
        world.broker.disconnect(session, stream.outlet, Reason.NORMAL if politely else Reason.CLIENT_GONE, world.now,
                                will=not politely, expiry_s=expiry_s)
        world.reap()

    def closed(self, stream: Stream, last: bytes | None) -> None:
        """The broker ended the connection, with these last words; None: without one, in the middle of a record."""
        self._cut()
        stream.outlet.open = False
        if self.stream is stream:
            self.stream = None
        if last is not None:
            stream.finish(last)
            if self.version == 5:
                assert isinstance(stream.unread[-1].item, DisconnectPacket), "no last word"

    def write(self, frame: bytes | None) -> None:
        assert self.stream is not None
        assert self.session is not None
        if frame is not None:
            self.stream.outlet.out += frame
            self.world.broker.fanout.again[self.session] = None

    # -- frames -----------------------------------------------------------------------------------------------------

    def on_frame(self, stream: Stream, frame: Frame) -> None:
        """A socket took a frame whole; the client has not read it yet."""
        item = as_publish(frame.item)
        if item is None:
            return
        seen = take_apart(item)
        if seen.dup:
            assert seen.packet_id in self.by_id, f"DUP on an id not in use: {seen}"
            model = self.by_id[seen.packet_id][0]
        else:
            model = self._whose(stream, frame, item)
        sequence = model.take(seen)
        if not seen.qos:
            return
        if seen.dup:
            assert self.by_id[seen.packet_id][1] == sequence, f"another record under an id in use: {seen}"
        else:
            assert seen.packet_id not in self.by_id, f"id {seen.packet_id} is in use"
            self.by_id[seen.packet_id] = (model, sequence)
            model.unsettled[seen.packet_id] = sequence
        assert seen.packet_id not in stream.outstanding, f"id {seen.packet_id} sent twice in one connection"
        stream.outstanding[seen.packet_id] = sequence
        assert len(stream.outstanding) <= self.credit, f"more than {self.credit} in flight"

    def _gone(self, item: Publish) -> list[SubModel]:
        assert self.session is not None
        delivery = in_flight_as(self.session.channel, item.packet_id) if item.qos else None
        return [
            model for model in self.models
            if (delivery is None or model.subscription is delivery.subscription)
            and matches(model.filter, item.run.topic)
        ][-1:]  # fmt: skip

    @property
    def _holds_back(self) -> bool:
        """There is a journal that has to have its exactly-once deliveries before they are sent (frames.py)."""
        return self.session is not None and self.session.durable

    def _whose(self, stream: Stream, frame: Frame, item: Publish) -> SubModel:
        place = (stream.number, frame.start)
        fitting = [
            model for model in self.models
            if model.subscription.session is stream.session  # an earlier session's subscriptions end over many turns
            and model.began <= place and (model.ended is None or place < model.ended)
            and matches(model.filter, item.run.topic)
            and (model.identifier is None or model.identifier in item.identifiers)
        ]  # fmt: skip
        if not fitting and self._holds_back:  # it has ended since it was written
            fitting = self._gone(item)
        assert len(fitting) == 1, f"{len(fitting)} subscriptions fit {item.run.topic} at {place} of {self.name}"
        return fitting[0]

    def read(self, limit: float) -> bool:
        """Take up to so many bytes from the socket. Whether there were any."""
        stream, world = self.stream, self.world
        if stream is None:
            return False
        outlet = stream.outlet
        count = min(outlet.taken - outlet.drained, int(limit))
        outlet.drained += count
        while stream.unread and stream.unread[0].stop <= outlet.drained:
            self._arrived(stream, stream.unread.popleft())
        if outlet.waits and outlet.taken - outlet.drained < outlet.capacity and stream.session is not None:
            outlet.waits = False
            world.broker.writable(stream.session, world.now)
            return True
        return count > 0

    def _arrived(self, stream: Stream, frame: Frame) -> None:
        due = self.world.now + (self.world.rng.random() * self.manner.ack_delay_s if self.manner.ack_delay_s else 0.0)
        if isinstance(frame.item, PubRel):
            self.acks.append((due, 7, frame.item.packet_id))
            return
        item = as_publish(frame.item)
        if item is None or not item.qos:
            return
        self.acks.append((due, 4 if item.qos == 1 else 5, item.packet_id))
        if item.qos == 2 and item.packet_id not in self.received:
            self.received.add(item.packet_id)
            model, sequence = self.by_id[item.packet_id]
            had = self.had.setdefault(model, set())
            if not item.run.retain and sequence > model.start:  # what was before can be asked for in several ways
                assert sequence not in had, f"given twice at QoS 2: {item}"
                had.add(sequence)

    def acknowledge(self) -> bool:
        """Send the acknowledgements that are due."""
        stream, now, rng = self.stream, self.world.now, self.world.rng
        if stream is None or not self.manner.acks:
            return False
        due = [ack for ack in self.acks if ack[0] <= now]
        self.acks = [ack for ack in self.acks if ack[0] > now]
        if self.manner.disorder:
            rng.shuffle(due)
        for kind, some in groupby(due, itemgetter(1)):
            ids = [packet_id for _, _, packet_id in some]
            if len(ids) > 1 and (kind in (4, 5) or (kind == 7 and not self._orphaned)):
                if self.stream is stream:
                    self._acknowledge_all(stream, kind, ids)
                continue
            for packet_id in ids:
                if self.stream is not stream:
                    break
                self._acknowledge(stream, kind, packet_id)
        return bool(due)

    @property
    def _orphaned(self) -> bool:
        return self.session is not None and bool(self.session.channel.orphaned_ids)

    def _acknowledge_all(self, stream: Stream, kind: int, ids: list[int]) -> None:
        """As the server does with acknowledgements that come together."""
        session = self.session
        assert session is not None
        if kind == 5:
            for packet_id, there in zip(ids, self.world.broker.on_pubrecs(session, ids)[0], strict=True):
                self.write(stream.replies.pubrel(packet_id, 0 if there or self.version == 4 else 0x92))
            return
        known = in_flight(session.channel).keys() & set(ids)
        self.world.broker.acknowledge_all(session, ids)
        for packet_id in ids:
            self._has_acknowledged(stream, packet_id, known=packet_id in known)

    def _acknowledge(self, stream: Stream, kind: int, packet_id: int) -> None:
        broker, session, now = self.world.broker, self.session, self.world.now
        assert session is not None
        if kind == 5:
            known = broker.on_pubrec(session, packet_id)
            self.write(stream.replies.pubrel(packet_id, 0 if known or self.version == 4 else 0x92))
            return
        known = (broker.on_pubcomp if kind == 7 else broker.acknowledge)(session, packet_id, now)
        self._has_acknowledged(stream, packet_id, known=known)

    def _has_acknowledged(self, stream: Stream, packet_id: int, *, known: bool) -> None:
        stream.outstanding.pop(packet_id, None)
        self.received.discard(packet_id)
        found = self.by_id.pop(packet_id, None)
        if found is not None:
            model, _ = found
            model.unsettled.pop(packet_id, None)
            assert known or model.excess, f"{packet_id} is not in flight any more"

    # -- publishing -------------------------------------------------------------------------------------------------

    def publish(self) -> None:
        """A burst in one read, as the server would take it apart."""
        world, rng = self.world, self.world.rng
        if self.stream is None or self.paused:
            return
        data = b""
        topic = rng.choice(TOPICS)
        for _ in range(rng.choice((1, 1, 3, 10, 40))):
            if rng.random() < 0.3:
                topic = rng.choice(TOPICS)
            qos = rng.choice((0, 0, 0, 1, 2))
            self.packet_id = self.packet_id % 60_000 + 1
            properties, expiry_s = Properties(), None
            if self.version == 5 and rng.random() < 0.3:
                properties = Properties(user=(("priority", str(rng.randint(0, 9))), ("x", "y")))
            if self.version == 5 and rng.random() < 0.15:
                expiry_s = rng.choice((1, 2, 30))
            body = payload(rng, world.next_number(), world.size_max)
            if rng.random() < 0.01 and topic not in world.emptied:
                world.emptied.add(topic)  # once: they all look alike
                body = b""
            data += encode_publish(topic, body, version=self.version, qos=qos, packet_id=self.packet_id if qos else 0,
                                   retain=rng.random() < 0.1, properties=properties, expiry_s=expiry_s)
        world.note("publishes", self.name, len(data))
        world.last_reads[self.name] = Counter()
        runs: list[Run] = []
        items = self.decoder.feed(data)
        assert self.decoder.error is None
        for item in items:
            if isinstance(item, Run):
                runs.append(item)
                continue
            if runs:
                world.publish(self, runs)
                runs = []
            if isinstance(item, PublishRun):
                world.publish(self, [item.run])
                if self.stream is not None:
                    kind = PubAck if item.run.qos == 1 else PubRec
                    self.write(self.stream.replies.acks(kind, item.packet_ids))
                continue
            assert isinstance(item, Publish)
            if item.expiry_s is not None:
                item.run.expires_s = world.now + item.expiry_s
            world.publish(self, [item.run])
            if item.qos and self.stream is not None:
                reply = self.stream.replies
                self.write(reply.puback(item.packet_id) if item.qos == 1 else reply.pubrec(item.packet_id))
        if runs:
            world.publish(self, runs)

    @property
    def idle(self) -> bool:
        return self.stream is None or (not self.acks and not self.stream.unread)
