"""Brokers with TLS: the same settings and a certificate, which is made anew for each of them."""

from __future__ import annotations

from collections.abc import Sequence

from bench.peers.headway import Headway
from bench.peers.mosquitto import Mosquitto
from bench.peers.nats import NatsServer
from bench.peers.peer import Instance, Peer
from bench.wires.tls import MqttTls, NatsTls
from headway.cli.certs import make_certificates

WHY: Sequence[str] = (
    "As without TLS, but for a certificate (P-256), which is made for the run.",
    "TLS 1.3 as each of them comes: no cipher is set.",
)


class HeadwayTls(Headway):
    name, title = "headway-tls", "Headway (TLS)"
    wire = MqttTls()
    conflating_wire = MqttTls(5)
    config = Headway.config.replace('url = "mqtt:', 'url = "mqtts:') + """
[listeners.mqtt.tls]
certificate = "{folder}/certs/server.pem"
key = "{folder}/certs/server-key.pem"
"""
    why: Sequence[str] = WHY
    inside = "tls"

    def prepare(self, instance: Instance) -> None:
        make_certificates(instance.folder / "certs")
        super().prepare(instance)


class MosquittoTls(Mosquitto):
    name, title = "mosquitto-tls", "mosquitto (TLS)"
    wire = MqttTls()
    config = Mosquitto.config + """
certfile {folder}/certs/server.pem
keyfile {folder}/certs/server-key.pem
"""
    why: Sequence[str] = WHY
    inside = "tls"

    def tuned(self, workload: str) -> Peer:
        return self

    def prepare(self, instance: Instance) -> None:
        make_certificates(instance.folder / "certs")
        for file in (instance.folder, *instance.folder.rglob("*")):
            file.chmod(0o755)  # mosquitto changes to a user of its own
        super().prepare(instance)


class NatsTlsServer(NatsServer):
    name, title = "nats-tls", "NATS (TLS)"
    wire = NatsTls()
    config = NatsServer.config + """
tls {{ cert_file: "{folder}/certs/server.pem", key_file: "{folder}/certs/server-key.pem" }}
"""
    why: Sequence[str] = WHY
    inside = "tls"

    def prepare(self, instance: Instance) -> None:
        make_certificates(instance.folder / "certs")
        super().prepare(instance)
