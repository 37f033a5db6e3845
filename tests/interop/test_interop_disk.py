"""Memory runs out, the disk takes over; the disk runs out or fails, and only those who stand there pay."""

from __future__ import annotations

import os
import resource
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.interop.conftest import BrokerFactory
from tests.interop.process import LISTENER, BrokerProcess
from tests.interop.raw import Message, Raw
from tests.interop.waiting import until

from headway.wire.mqtt.packets import NEVER, TopicRequest

SMALL = {"receive_buffer": 4096}
SIZE = 2000


def pool(folder: Path, disk: str, memory: str = "2MB") -> str:
    folder.mkdir(exist_ok=True)
    return LISTENER + f'packet_max = "100KB"\n[pool]\nmemory = "{memory}"\ndisk = "{disk}"\ndisk_path = "{folder}"\n'


def flood(writer: Raw, topic: str, count: int, *readers: Raw) -> list[bytes]:
    """Publish so many records; these readers get every one of them, and at once."""
    payloads = [b"%06d" % i + b"." * (SIZE - 6) for i in range(count)]
    for at in range(0, count, 100):
        writer.publish_all(topic, payloads[at : at + 100])
        writer.published("flood/end")
        for reader in readers:
            assert reader.payloads(len(payloads[at : at + 100])) == payloads[at : at + 100]
    return payloads


def used(broker: BrokerProcess) -> dict[str, Any]:
    row: dict[str, Any] = broker.get("/v1/broker")["pools"][0]
    return row


@pytest.mark.parametrize("qos", [0, 1])
def test_everything_comes_back_from_disk(start: BrokerFactory, name: str, tmp_path: Path, qos: int) -> None:
    """Three stuck consumers, 8 MB beyond a pool of 2 MB: on disk once, and whole and in order for each of them."""
    broker = start(pool(tmp_path / "spill", "100MB"))
    with Raw(broker.port, f"{name}-good") as good, Raw(broker.port) as writer, Raw(broker.port) as watcher:
        watcher.subscribed(f"$SYS/headway/offlined/{name}-0", f"$SYS/headway/online/{name}-0")
        stuck = [Raw(broker.port, f"{name}-{i}", **SMALL).subscribed(TopicRequest(name, qos)) for i in range(3)]
        good.subscribed(name)
        sent = flood(writer, name, 4000) if not qos else []
        for i in range(0, 4000 if qos else 0, 200):
            for k in range(200):
                payload = b"%06d" % (i + k) + b"." * (SIZE - 6)
                sent.append(payload)
                writer.publish(name, payload, 1)
            writer.so_far()
        assert good.payloads(4000) == sent
        until(lambda: all(broker.consumer(f"{name}-{i}")["state"] == "offline" for i in range(3)))
        assert watcher.message().topic.startswith("$SYS/headway/offlined")
        row = used(broker)
        assert 4_000_000 < row["disk_bytes"] < 10_000_000  # once for all three
        assert row["memory_peak_bytes"] < 3_000_000
        held = [broker.consumer(f"{name}-{i}")["held_bytes"] for i in range(3)]
        assert sum(held) < 10_000_000  # a share each, not the whole each
        for client in stuck:
            got: list[Message] = []
            while len(got) < 4000:
                message = client.message()
                if qos:
                    client.ack(message)
                got.append(message)
            assert [m.payload for m in got] == sent
            assert not any("gap-records" in m.user for m in got)
        until(lambda: used(broker)["disk_bytes"] == 0)
        until(lambda: broker.consumer(f"{name}-0")["state"] == "ok")
        assert watcher.message().topic.startswith("$SYS/headway/online")
        assert not os.listdir(tmp_path / "spill")
        for client in stuck:
            client.close()
    broker.stop()


def test_who_is_away_is_kept_on_disk_too(start: BrokerFactory, name: str, tmp_path: Path) -> None:
    broker = start(pool(tmp_path / "spill", "100MB"))
    keep: dict[str, Any] = {"clean_start": False, "session_expiry_s": NEVER}
    with Raw(broker.port, name, **keep) as reader, Raw(broker.port) as writer:
        reader.subscribed(TopicRequest(name, 1))
        reader.goodbye()
        sent = [b"%06d" % i + b"." * 3000 for i in range(1500)]
        for i, payload in enumerate(sent):
            writer.publish(name, payload, 1)
            if i % 100 == 99:
                writer.so_far()
        until(lambda: used(broker)["disk_bytes"] > 2_000_000)
        with Raw(broker.port, name, **keep) as back:
            for payload in sent:
                message = back.message()
                assert message.payload == payload
                back.ack(message)
        until(lambda: used(broker)["disk_bytes"] == 0)
    broker.stop()


def test_beyond_the_disk_those_furthest_back_are_disconnected(start: BrokerFactory, name: str, tmp_path: Path) -> None:
    broker = start(pool(tmp_path / "spill", "3MB") + 'max_client_share = "100%"\n')
    _only_the_stuck_one_goes(broker, name, ("disk_limit", "client_share"))


def test_a_clients_share_binds_while_there_is_room(start: BrokerFactory, name: str, tmp_path: Path) -> None:
    broker = start(pool(tmp_path / "spill", "20MB") + 'max_client_share = "10%"\n')
    _only_the_stuck_one_goes(broker, name, ("client_share",))


def test_without_a_disk_memory_is_the_limit(start: BrokerFactory, name: str, tmp_path: Path) -> None:
    broker = start(pool(tmp_path / "spill", "0"))
    _only_the_stuck_one_goes(broker, name, ("memory_limit", "client_share"))


@pytest.mark.parametrize("disk", ["0", "3MB"])
def test_the_client_that_holds_the_most_in_all_of_its_subscriptions_goes(
    start: BrokerFactory, name: str, tmp_path: Path, disk: str
) -> None:
    broker = start(pool(tmp_path / "spill", disk, "3MB") + 'max_client_share = "100%"\n')
    topics = [f"{name}/many/{number}" for number in range(8)]
    with Raw(broker.port) as writer, Raw(broker.port, f"{name}-many", **SMALL) as many, \
            Raw(broker.port, f"{name}-one", **SMALL) as one:  # fmt: skip
        many.subscribed(*topics)
        one.subscribed(f"{name}/one")
        while not broker.verdicts(f"{name}-many") and not broker.verdicts(f"{name}-one"):
            for topic in topics:
                writer.publish_all(topic, [b"." * SIZE] * 5)
            writer.publish_all(f"{name}/one", [b"." * SIZE] * 20)
            writer.published("flood/end")
        (verdict,) = broker.verdicts(f"{name}-many")
        assert verdict["reason"] in ("memory_limit", "disk_limit")[: 1 + (disk != "0")]  # or the disk is too slow
        assert "its client holds more than any other" in verdict["text"]
        assert "in 8 subscriptions" in verdict["text"]
        disconnect = many.wait_disconnect()
        assert disconnect.code == 0x97
        until(lambda: used(broker)["memory_bytes"] + used(broker)["disk_bytes"] < 3_000_000)
        assert broker.verdicts(f"{name}-one") == []
        assert broker.consumer(f"{name}-one")["connected"]
    broker.stop()


@pytest.mark.parametrize("fault", ["full", "gone", "loses what it was given"])
def test_a_failing_disk_costs_the_offlined_their_connection(
    start: BrokerFactory, name: str, tmp_path: Path, fault: str
) -> None:
    """``full``: nothing can be written beyond so many bytes; ``gone``: no file can be made any more (as when it is
    mounted read-only); the last: what was written is not there when it is to be read."""
    broker = start(pool(tmp_path / "spill", "100MB"))
    if fault == "full":
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
    elif fault == "gone":
        shutil.rmtree(tmp_path / "spill")
    _only_the_stuck_one_goes(broker, name, ("spill_failed",), truncate=fault.startswith("loses"))
    if fault == "full":
        assert "cannot write" in broker.log.read_text()


def spilled(broker: BrokerProcess) -> list[Path]:
    """The files of the spill that the broker has open; it opens and closes others meanwhile."""
    found = []
    for fd in Path(f"/proc/{broker.pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            if "/spill/" in os.readlink(fd):
                found.append(fd)
    return found


def _sizes(broker: BrokerProcess) -> tuple[int, ...]:
    """The sizes of the files of the spill, and what of it the broker knows of."""
    files = [fd.stat().st_size for fd in spilled(broker)]
    return (*files, used(broker)["disk_bytes"]) if files else ()


def _only_the_stuck_one_goes(
    broker: BrokerProcess, name: str, reasons: tuple[str, ...], *, truncate: bool = False
) -> None:
    """Flood; the stuck one is disconnected and told why, the good one and the broker go on as if nothing had been."""
    with Raw(broker.port, f"{name}-good") as good, Raw(broker.port) as writer, Raw(broker.port, name, **SMALL) as stuck:
        good.subscribed(name)
        stuck.subscribed(name)
        sent = flood(writer, name, 3500, good)
        if truncate:
            # What is written behind the cut would leave a hole of zeros, as no disk does, and they would be sent.
            until(lambda: used(broker)["memory_bytes"] <= 1_600_000, what="all that has to go to disk is there")
            looks = [_sizes(broker)]
            until(lambda: looks.append(_sizes(broker)) or looks[-1] == looks[-2] != (), what="nothing is being written")
            for fd in spilled(broker):
                os.truncate(fd, 300_000)
        else:
            until(lambda: broker.verdicts(name))
        disconnect = stuck.wait_disconnect() if not truncate else stuck.wait_end()
        verdict = broker.verdicts(name)[0]
        assert verdict["reason"] in reasons, verdict
        if disconnect is not None:
            assert disconnect.code == 0x97
            assert disconnect.reason
            assert verdict["text"] in disconnect.reason
        got = [m.payload for m in stuck.inbox if type(m) is Message]
        assert got == sent[: len(got)]
        until(lambda: used(broker)["disk_bytes"] == 0)
        for _ in range(2):
            flood(writer, name, 500, good)
        with Raw(broker.port, f"{name}-new") as fresh:
            fresh.subscribed(name)
            flood(writer, name, 100, good, fresh)
    assert broker.alive
    broker.stop()
