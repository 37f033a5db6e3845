"""Every end of a connection is on record: a line in the log, and an entry that `headway why` finds, with the time."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pamqp import commands
from tests.interop.amqp_raw import Raw as AmqpRaw
from tests.interop.command import headway
from tests.interop.conftest import BrokerFactory
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw
from tests.interop.waiting import until
from tests.passwords import cheap_hash

CONFIG = """
[listeners.mqtt]
url = "mqtt://127.0.0.1:0"
allow_anonymous = true
[listeners.amqp]
url = "amqp://127.0.0.1:0"
connect_timeout = "1s"
[auth.users]
alice = "{password}"
[auth.admin]
change = ["alice"]
"""
End = Callable[[BrokerProcess, str], None]


@pytest.fixture(scope="module")
def house(start: BrokerFactory) -> BrokerProcess:
    broker = start(CONFIG.format(password=cheap_hash("right")))
    broker.login = "alice:right"
    return broker


def mqtt(house: BrokerProcess, name: str, **more: Any) -> Raw:
    return Raw(house.ports["mqtt"], name, **more)


def goodbye(house: BrokerProcess, name: str) -> None:
    mqtt(house, name).goodbye(code=4, reason="time for tea")


def vanishes(house: BrokerProcess, name: str) -> None:
    mqtt(house, name).close()


def resets(house: BrokerProcess, name: str) -> None:
    raw = mqtt(house, name)
    raw.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    raw.close()


def says_nothing(house: BrokerProcess, name: str) -> None:
    mqtt(house, name, keep_alive_s=1).wait_end()


def comes_again(house: BrokerProcess, name: str) -> None:
    with mqtt(house, name) as old, mqtt(house, name):
        old.wait_end()


def is_kicked(house: BrokerProcess, name: str) -> None:
    with mqtt(house, name) as raw:
        assert house.call(f"/v1/clients/{name}", "DELETE")[0] == 204
        raw.wait_end()


def breaks_the_protocol(house: BrokerProcess, name: str) -> None:
    with mqtt(house, name) as raw:
        raw.send(b"\x10\x00")
        raw.wait_end()


def has_a_wrong_password(house: BrokerProcess, name: str) -> None:
    with mqtt(house, name, username="alice", password=b"wrong", granted=False) as raw:
        raw.wait_end()


def amqp(house: BrokerProcess, name: str, **more: Any) -> AmqpRaw:
    class Named(AmqpRaw):
        peer: ClassVar[dict[str, str]] = {"connection_name": name}

    return Named(house.ports["amqp"], **{"user": ("alice", "right"), **more})


def closes(house: BrokerProcess, name: str) -> None:
    with amqp(house, name) as raw:
        raw.do(commands.Connection.Close(320, "enough", 0, 0), 0)
        raw.wait_end()


def misses_heartbeats(house: BrokerProcess, name: str) -> None:
    with amqp(house, name, heartbeat=1) as raw:
        raw.wait_end()


def breaks_amqp(house: BrokerProcess, name: str) -> None:
    with amqp(house, name) as raw:
        raw.do(commands.Basic.Qos(0, 1, False), 77)
        raw.wait_end()


ENDS: dict[str, tuple[End, str, str]] = {
    "goodbye": (goodbye, "normal", "the client said goodbye (0x04): time for tea"),
    "socket closed": (vanishes, "client_gone", "the socket was closed without a goodbye"),
    "reset": (resets, "client_gone", "the connection was lost: connection reset by peer"),
    "keep-alive": (says_nothing, "keep_alive", "nothing was heard for"),
    "take-over": (comes_again, "taken_over", "the same client id connected again"),
    "kick": (is_kicked, "admin", "disconnected by an operator"),
    "protocol error": (breaks_the_protocol, "protocol_error", "CONNECT (packet 2) comes a second time"),
    "refused login": (has_a_wrong_password, "not_authorized", "wrong user name or password"),
    "AMQP goodbye": (closes, "normal", "the client said goodbye: 320 enough"),
    "AMQP heartbeat": (misses_heartbeats, "keep_alive", "nothing was heard for"),
    "AMQP protocol error": (breaks_amqp, "protocol_error", "channel 77 is not open"),
}


@pytest.mark.parametrize("kind", ENDS)
def test_every_end_is_on_record(house: BrokerProcess, name: str, kind: str) -> None:
    end, reason, text = ENDS[kind]
    name = f"{name}-ends"
    began = time.time()
    end(house, name)
    found = until(lambda: house.call(f"/v1/why/{name}")[0] == 200 and ends(house, name), 30.0, "it is on record")[-1]
    assert found["reason"] == reason
    assert found["text"].startswith(text)
    assert began - 1 < found["wall_s"] < time.time() + 1
    assert 0 <= found["lasted_s"] < 60
    lines = [line for line in house.log.read_text().splitlines() if name in line and " after " in line]
    assert [line for line in lines if reason in line and text in line], lines
    assert len(lines) <= 2, "one line each"


def ends(house: BrokerProcess, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = house.get(f"/v1/why/{name}")["ends"]
    return found


def test_a_refused_login_is_found_by_its_user(house: BrokerProcess, name: str) -> None:
    has_a_wrong_password(house, f"{name}-login")
    found = until(lambda: ends(house, "alice"), 30.0, "it is on record")[0]
    assert (found["client"], found["username"], found["admitted"]) == (f"{name}-login", "alice", False)
    door = house.admin.replace("//", f"//{house.login}@")
    said = headway("why", "alice", "--admin", door).stdout
    assert "was not admitted, not_authorized: wrong user name or password" in said
    assert "user alice" in said


def test_an_amqp_login_is_found_by_its_user(house: BrokerProcess, name: str) -> None:
    with pytest.raises((AssertionError, OSError)):
        amqp(house, f"{name}-rabbit", user=("bob", "wrong"))
    found = until(lambda: house.call("/v1/why/bob")[0] == 200 and ends(house, "bob"), 30.0, "it is on record")[0]
    assert (found["reason"], found["client"], found["admitted"]) == ("not_authorized", f"{name}-rabbit", False)


def test_a_name_makes_no_line_of_the_log(house: BrokerProcess, name: str) -> None:
    mqtt(house, f"{name}\nFORGED").goodbye()
    until(lambda: ends(house, f"{name}%0AFORGED"), 30.0, "it is on record")
    assert not [line for line in house.log.read_text().splitlines() if line.startswith("FORGED")]


def test_who_was_never_let_in_drives_nobody_out(house: BrokerProcess, name: str) -> None:
    mqtt(house, name).goodbye()
    until(lambda: ends(house, name), 30.0, "it is on record")
    for _ in range(20):
        with mqtt(house, name, username="alice", password=b"wrong", granted=False) as raw:
            raw.wait_end()
    until(lambda: len(ends(house, name)) >= 17, 30.0, "they are on record")
    assert [end for end in ends(house, name) if end["admitted"]]


@pytest.mark.parametrize("listener", ["mqtt", "amqp", "admin"])
def test_the_kernel_asks_whether_a_silent_peer_is_there(house: BrokerProcess, listener: str) -> None:
    port = house.ports[listener] if listener in house.ports else int(house.admin.rsplit(":", 1)[1])
    with socket.create_connection(("127.0.0.1", port)) as sock:
        own = sock.getsockname()[1]
        shown = until(lambda: timer_of(port, own), 30.0, "the broker has accepted it")
    assert shown == "02", "the keep-alive timer runs"


def timer_of(local: int, remote: int) -> str:
    """Of the broker's end of a connection over the loopback, as the kernel shows it."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if int(fields[1][-4:], 16) == local and int(fields[2][-4:], 16) == remote:
            return fields[5].split(":")[0]
    return ""
