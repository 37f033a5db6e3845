"""All peers, in the order they are shown."""

from __future__ import annotations

from bench.peers.activemq import Activemq, ActivemqCached, ActivemqJms, ActivemqStomp
from bench.peers.headway import Headway
from bench.peers.headway_amqp import HeadwayAmqp
from bench.peers.headway_openwire import HeadwayJms, HeadwayOpenwire, HeadwayOpenwireCached
from bench.peers.headway_stomp import HeadwayStomp
from bench.peers.limit import Limit
from bench.peers.mosquitto import Mosquitto
from bench.peers.nats import NatsServer
from bench.peers.peer import Peer
from bench.peers.rabbitmq import Rabbitmq
from bench.peers.redis import Redis
from bench.peers.web import HeadwayWeb, MosquittoWeb, NatsServerWeb, RabbitmqWeb
from bench.peers.with_tls import HeadwayTls, MosquittoTls, NatsTlsServer

EVERY: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        Limit(), Headway(), HeadwayAmqp(), HeadwayStomp(), HeadwayOpenwire(), HeadwayOpenwireCached(), HeadwayJms(),
        NatsServer(), Redis(), Mosquitto(), Rabbitmq(), Activemq(), ActivemqCached(), ActivemqJms(), ActivemqStomp(),
        HeadwayWeb(), MosquittoWeb(), NatsServerWeb(), RabbitmqWeb(),
        HeadwayTls(), NatsTlsServer(), MosquittoTls(),
    )
}  # fmt: skip
