"""Slow consumers over TLS: they are found, told, and served from disk as without it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw
from tests.interop.tls_house import House
from tests.interop.waiting import until

pytest_plugins = ("tests.interop.tls_fixtures",)



class TestSlow:
    CONFIG: ClassVar[str] = """
[pool]
memory = "4MB"
disk = "200MB"
disk_path = "{folder}/spill"
[listeners.mqtt]
url = "mqtts://127.0.0.1:0"
[listeners.mqtt.tls]
certificate = "{folder}/server.pem"
key = "{folder}/server-key.pem"
[listeners.plain]
url = "mqtt://127.0.0.1:0"
[[policy]]
name = "cut"
topics = ["cut/#"]
[[policy.rule]]
when = {{ blocked_time = "1s" }}
then = "disconnect"
[[policy]]
name = "all"
[[policy.rule]]
when = {{ blocked_time = "2s" }}
then = "notify"
"""

    @pytest.fixture
    def slow(self, tmp_path: Path, tls_folder: Path) -> Iterator[House]:
        broker = BrokerProcess(tmp_path, self.CONFIG.format(folder=tls_folder))
        yield House(broker, tls_folder, tls_folder / "ca.pem")
        broker.stop()

    def test_what_waits_goes_to_disk_and_comes_back_whole(self, slow: House, name: str) -> None:
        """Records are read from files and enciphered."""
        payload = [bytes([number % 256]) * 20_000 for number in range(1_000)]
        with slow.raw(name, receive_buffer=20_000) as away, Raw(slow.port("plain")) as writer:
            away.subscribed("far/#")
            for at in range(0, len(payload), 50):
                writer.publish_all("far/x", payload[at : at + 50])
            writer.published("far/end", b"end")
            until(lambda: slow.broker.get("/v1/broker")["pools"][0]["disk_bytes"] > 1_000_000)
            assert slow.broker.consumer(name)["lag_records"] > 0
            assert away.payloads(len(payload) + 1) == [*payload, b"end"]

    def test_a_stuck_one_is_found_and_told(self, slow: House, name: str) -> None:
        with slow.raw(name, receive_buffer=20_000) as stuck, Raw(slow.port("plain")) as writer:
            stuck.subscribed("cut/#")
            writer.publish_all("cut/x", [b"x" * 10_000] * 400)
            verdict = until(lambda: slow.broker.verdicts(name))[0]
            assert verdict["reason"] == "blocked"
            assert verdict["cause"] == "application"
            assert stuck.wait_disconnect().code == 0x97
            assert stuck.inbox, "and what it had been sent before"

    def test_a_slow_reader_is_no_stuck_one(self, slow: House, name: str) -> None:
        """It reads some records of TLS at a time, and its progress is what it has read."""
        with slow.raw(name, receive_buffer=20_000) as reader, Raw(slow.port("plain")) as writer:
            reader.subscribed("slow/#")
            writer.publish_all("slow/x", [b"y" * 1_000] * 4_000)
            until(lambda: slow.broker.consumer(name).get("lag_records", 0) > 0)
            deadline = time.monotonic() + 6
            while time.monotonic() < deadline and not reader.ended:
                reader.sock.recv(8_000)
                until(lambda: True)
                time.sleep(0.05)  # its pace
            assert not [one for one in slow.broker.verdicts(name) if one["reason"] == "blocked"]
