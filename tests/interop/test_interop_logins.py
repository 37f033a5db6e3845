"""Who is who, with real clients: password files, and addresses whose logins fail."""

from __future__ import annotations

import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pika
import pika.exceptions
import pytest
from tests.interop.amqp_pika import Pika
from tests.interop.conftest import BrokerFactory
from tests.interop.pahos import Paho
from tests.interop.process import BrokerProcess
from tests.interop.waiting import until
from tests.server.test_password_file import ALICE, BOB

LISTENERS = """
[listeners.mqtt]
url = "mqtt://127.0.0.1:0"
[listeners.amqp]
url = "amqp://127.0.0.1:0"
"""


def code(broker: BrokerProcess, user: str, password: str) -> int:
    """The code that paho is let in, or refused, with."""
    client = Paho(broker.ports["mqtt"], f"of-{user}", user=(user, password))
    client.close()
    return int(client.connack.value)


def reload(broker: BrokerProcess) -> str:
    """Reload the config. Returns what the log says of it."""
    before = broker.log.read_text().count("reload: ")
    broker.signal(signal.SIGHUP)
    until(lambda: broker.log.read_text().count("reload: ") > before, what="the reload")
    return broker.log.read_text().rpartition("reload: ")[2]


# -- password files ----------------------------------------------------------------------------------------------------


def test_users_of_a_mosquitto_password_file_come_in_until_they_are_gone(start: BrokerFactory, tmp_path: Path) -> None:
    path = tmp_path / "passwd"
    path.write_text(f"alice:{ALICE}\nbob:{BOB}\n")
    broker = start(f'{LISTENERS}[auth]\npassword_file = "{path}"\n')
    for user, password in (("alice", "wonder"), ("bob", "builder")):
        assert code(broker, user, password) == 0
        command = ["mosquitto_pub", "-p", str(broker.ports["mqtt"]), "-u", user, "-P", password, "-t", "t", "-m", "x"]
        assert subprocess.run([*command, "-q", "1"], timeout=30, check=False).returncode == 0
        Pika(broker.ports["amqp"], credentials=pika.PlainCredentials(user, password)).close()
    assert code(broker, "alice", "builder") == 0x86
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        Pika(broker.ports["amqp"], credentials=pika.PlainCredentials("bob", "wonder"))

    path.write_text(f"alice:{ALICE}\ncarol:secret\n")
    assert f"nothing was changed: {broker.config}: auth.password_file: {path}:2: the password of carol" in (
        reload(broker)
    )
    assert "secret" not in broker.log.read_text()
    assert code(broker, "bob", "builder") == 0

    path.write_text(f"alice:{BOB}\n")
    assert "1 users" in reload(broker)
    assert code(broker, "bob", "builder") == 0x86
    assert code(broker, "alice", "wonder") == 0x86
    assert code(broker, "alice", "builder") == 0


# -- addresses whose logins fail ---------------------------------------------------------------------------------------


def test_a_guesser_is_slowed_and_who_was_let_in_from_there_is_not(start: BrokerFactory, tmp_path: Path) -> None:
    path = tmp_path / "passwd"
    path.write_text(f"alice:{ALICE}\nbob:{BOB}\n")
    broker = start(f'{LISTENERS}[auth]\npassword_file = "{path}"\n')
    broker.login = "alice:wonder"
    assert code(broker, "alice", "wonder") == 0

    def guess(number: int) -> str:
        client = Paho(broker.ports["mqtt"], f"g{number}", user=(f"user{number}", "guess"))
        client.close()
        return str(client.connect_properties.ReasonString)

    with ThreadPoolExecutor(16) as threads:
        said = set(threads.map(guess, range(16)))
        said |= set(threads.map(guess, range(16, 24)))
    assert "wrong user name or password" in said
    assert any(one.startswith("too many logins from this address have failed: try again in ") for one in said)
    assert "logins from 127.0.0.1 are slowed: too many have failed of late" in broker.log.read_text()
    assert code(broker, "alice", "wonder") == 0
    _, page = broker.call("/metrics")
    assert b'headway_logins_failed_total{why="too_many"}' in page
    assert b'headway_logins_failed_total{why="wrong"}' in page
    assert broker.call("/v1/why/user3")[0] == 200  # and each is on record
