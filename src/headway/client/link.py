"""The link to a broker: MQTT 5 connections of paho-mqtt on an asyncio loop, one at a time.

paho parses and writes packets, and knows TLS and WebSocket. The link tells it when the socket can be read, and so can
stop reading: what is not read waits in the broker. Names are looked up and TLS is shaken hands on in a thread, for paho
waits for both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from headway.client.broker_address import BrokerAddress
from headway.client.events import Arrived, Pairs
from headway.core.base import HeadwayError

READS_MAX = 256
"""The number of packets that are handled before other tasks of the loop get their turn."""
KEEP_ALIVE_S = 60
NEVER_RETAINED = 2
RETRY_AFTER = "retry-after-s"


class LinkError(HeadwayError):
    """The broker cannot be reached, or does not let the client in."""

    def __init__(self, text: str, *, retry_after_s: float = 0.0, final: bool = False) -> None:
        super().__init__(text)
        self.retry_after_s = retry_after_s
        """The time for which the broker has shut the client out."""
        self.final = final
        """The broker would give the same answer again."""


class Receiver(Protocol):
    """The user of a link."""

    def received(self, record: Arrived) -> None: ...

    def granted(self, number: int, refusal: str, user: Pairs) -> None:
        """SUBACK came; ``refusal`` is empty if the subscription was granted."""

    def ended(self, number: int) -> None:
        """UNSUBACK came."""

    def lost(self, why: str) -> None:
        """The connection is over, and not because of :meth:`Link.close`."""


class Link:
    def __init__(self, address: BrokerAddress, client_id: str, receive_max: int, receiver: Receiver) -> None:
        self._address = address
        self._client_id = client_id
        self._receive_max = receive_max
        self._receiver = receiver
        self._loop = asyncio.get_running_loop()
        self._client: mqtt.Client | None = None
        self._greeted: asyncio.Future[None] | None = None
        self._reading = True
        self._packets = 0
        self._is_open = False

    # -- connecting -------------------------------------------------------------------------------------------------

    async def connect(self, timeout_s: float) -> None:
        """Connects. Raises LinkError."""
        self.close()
        client = self._client = self._new_client(timeout_s)
        self._greeted, self._reading = self._loop.create_future(), True
        try:
            async with asyncio.timeout(timeout_s):
                await self._open(client)
                await self._greeted
        except (OSError, ValueError) as error:  # TimeoutError is an OSError
            self.close()
            text = f"no answer within {timeout_s:g} s" if isinstance(error, TimeoutError) else str(error)
            raise LinkError(f"{self._address}: {text}") from error
        except BaseException:
            self.close()
            raise
        self._is_open = True

    async def _open(self, client: mqtt.Client) -> None:
        address, said = self._address, _properties(PacketTypes.CONNECT)
        said.ReceiveMaximum = self._receive_max

        def connect() -> None:
            client.connect(address.host, address.port, KEEP_ALIVE_S, clean_start=True, properties=said)

        connecting = self._loop.run_in_executor(None, connect)
        try:
            await asyncio.shield(connecting)
        except asyncio.CancelledError:
            connecting.add_done_callback(lambda done: _close_late(client, done))
            raise
        sock = client.socket()
        if client is not self._client or sock is None:
            raise OSError("the connection was closed at once")
        self._loop.add_reader(sock, self._readable)
        if client.want_write():
            self._loop.add_writer(sock, client.loop_write)

    def _new_client(self, timeout_s: float) -> mqtt.Client:
        address = self._address
        client = mqtt.Client(
            CallbackAPIVersion.VERSION2, self._client_id, protocol=MQTTProtocolVersion.MQTTv5,
            reconnect_on_failure=False, transport="tcp" if address.websocket_path is None else "websockets",
        )  # fmt: skip
        client.connect_timeout = timeout_s
        if address.websocket_path is not None:
            client.ws_set_options(address.websocket_path)
        if address.tls is not None:
            client.tls_set_context(address.tls)
        if address.user is not None:
            client.username_pw_set(address.user, address.password)
        client.on_connect = self._on_connect
        client.on_message = self._on_message
        client.on_subscribe = self._on_subscribe
        client.on_unsubscribe = lambda _client, _data, number, _codes, _said: self._receiver.ended(number)
        client.on_disconnect = self._on_disconnect
        client.on_socket_register_write = lambda _client, _data, sock: self._soon(self._watch_writing, client, sock)
        client.on_socket_unregister_write = lambda _client, _data, sock: self._soon(self._loop.remove_writer, sock)
        client.on_socket_close = lambda _client, _data, sock: self._forget(sock)
        return client

    def _soon(self, call: Callable[..., object], *arguments: Any) -> None:
        """Calls in the loop's thread, now if this is it: paho connects in another one."""
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            call(*arguments)
        else:
            self._loop.call_soon_threadsafe(call, *arguments)

    def _watch_writing(self, client: mqtt.Client, sock: Any) -> None:
        if client is self._client and sock.fileno() >= 0:
            self._loop.add_writer(sock, client.loop_write)

    def _forget(self, sock: Any) -> None:
        if sock.fileno() >= 0:
            self._soon(self._loop.remove_reader, sock)
            self._soon(self._loop.remove_writer, sock)

    # -- talking ----------------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self._is_open

    def subscribe(self, filter: str, qos: int, user: Pairs) -> int | None:
        """Sends SUBSCRIBE without a wish for retained records. Returns its number; None if that is not possible."""
        if self._client is None:
            return None
        said = _properties(PacketTypes.SUBSCRIBE)
        said.UserProperty = list(user)
        options = SubscribeOptions(qos, retainHandling=NEVER_RETAINED)
        return self._client.subscribe(filter, options=options, properties=said)[1]

    def unsubscribe(self, filter: str) -> int | None:
        return None if self._client is None else self._client.unsubscribe(filter)[1]

    def read(self, on: bool) -> None:
        """Goes on reading, or stops."""
        sock = None if self._client is None else self._client.socket()
        if on == self._reading or sock is None:
            return
        self._reading = on
        if on:
            self._loop.add_reader(sock, self._readable)
            self._loop.call_soon(self._readable)  # TLS may have bytes that the socket does not show
        else:
            self._loop.remove_reader(sock)

    def close(self) -> None:
        """Says goodbye, if there is a connection, and forgets it."""
        client, self._client, self._is_open = self._client, None, False
        sock = None if client is None else client.socket()
        if client is None or sock is None:
            return
        client.on_disconnect = client.on_socket_register_write = client.on_socket_unregister_write = None
        client.on_socket_close = None
        client.disconnect()
        self._forget(sock)
        sock.close()

    # -- what comes -------------------------------------------------------------------------------------------------

    def _readable(self) -> None:
        client = self._client
        for _ in range(READS_MAX):
            if client is None or client is not self._client or not self._reading or client.socket() is None:
                return
            before = self._packets
            client.loop_read()
            if self._packets == before:
                break
        sock = None if client is None else client.socket()
        pending = getattr(sock, "pending", None)  # TLS and WebSocket have bytes that the socket does not show
        if pending is not None and pending():
            self._loop.call_soon(self._readable)

    def _on_connect(self, _client: Any, _data: Any, _flags: Any, code: Any, said: Any) -> None:
        self._packets += 1
        if self._greeted is None or self._greeted.done():
            return
        if not code.is_failure:
            self._greeted.set_result(None)
            return
        retry_after_s = float(dict(user_of(said)).get(RETRY_AFTER, "0"))
        text = f"{self._address} refused: {getattr(said, 'ReasonString', str(code))}"
        self._greeted.set_exception(LinkError(text, retry_after_s=retry_after_s, final=code.value in FINAL))

    def _on_message(self, _client: Any, _data: Any, message: mqtt.MQTTMessage) -> None:
        self._packets += 1
        said = message.properties
        content_type = getattr(said, "ContentType", None)
        self._receiver.received(Arrived(message.topic, bytes(message.payload), user_of(said), content_type))

    def _on_subscribe(self, _client: Any, _data: Any, number: int, codes: Any, said: Any) -> None:
        self._packets += 1
        refused = [code for code in codes if code.is_failure]
        refusal = getattr(said, "ReasonString", str(refused[0])) if refused else ""
        self._receiver.granted(number, refusal, user_of(said))

    def _on_disconnect(self, client: Any, _data: Any, flags: Any, code: Any, said: Any) -> None:
        if client is not self._client:
            return
        text = getattr(said, "ReasonString", "")
        if not text:
            text = str(code) if flags.is_disconnect_packet_from_server else "the connection was lost"
        self._client, self._is_open = None, False
        if self._greeted is not None and not self._greeted.done():
            self._greeted.set_exception(LinkError(f"{self._address}: {text}"))
        else:
            self._receiver.lost(text)


FINAL = {0x84, 0x85, 0x86, 0x87, 0x8A, 0x8C}
"""Codes of CONNACK for whom the broker does not know, or does not let in."""


def _properties(packet: int) -> Any:
    """Returns properties of a packet, which paho has without types."""
    return Properties(packet)  # type: ignore[no-untyped-call]


def user_of(said: Any) -> Pairs:
    """Returns the user properties of a packet."""
    return getattr(said, "UserProperty", [])


def _close_late(client: mqtt.Client, done: asyncio.Future[None]) -> None:
    """Closes a connection for which nobody waits any more."""
    if not done.cancelled():
        done.exception()
    sock = client.socket()
    if sock is not None:
        sock.close()
