"""SCRAM-SHA-256 over MQTT 5 and AMQP."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pika
import pytest
from bench.wires.packets import encode_auth, encode_connect
from pamqp.commands import Connection
from tests.interop.amqp_pika import Pika
from tests.interop.amqp_raw import CAPABILITIES
from tests.interop.amqp_raw import Raw as AmqpRaw
from tests.interop.conftest import BrokerFactory
from tests.interop.pahos import Paho
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw
from tests.scram_client import ScramClient

from headway.server.config.auth import hash_password
from headway.wire.mqtt.packets import Auth, ConnAck, Connect

METHOD = "SCRAM-SHA-256"
NODE_MODULES = Path("/usr/share/nodejs")
CONFIG = f"""
[listeners.mqtt]
url = "mqtt://127.0.0.1:0"
[listeners.amqp]
url = "amqp://127.0.0.1:0"
[auth.users]
ann = "{hash_password("secret", scram_able=True)}"
bob = "{hash_password("hidden", scram_able=True)}"
old = "{hash_password("secret")}"
[[permission]]
publish = ["of/%u"]
subscribe = ["of/%u"]
"""


@pytest.fixture(scope="module")
def house(start: BrokerFactory) -> BrokerProcess:
    return start(CONFIG)


# -- MQTT 5 ------------------------------------------------------------------------------------------------------------


def begun(house: BrokerProcess, scram: ScramClient, **more: Any) -> Raw:
    raw = Raw(house.ports["mqtt"], connect=False)
    raw.send(encode_connect(Connect(5, "c", True, auth_method=METHOD, auth_data=scram.first(), **more)))
    return raw


def let_in(house: BrokerProcess, user: str = "ann", password: str = "secret", **more: Any) -> tuple[Raw, ConnAck]:
    scram = ScramClient(user, password)
    raw = begun(house, scram, **more)
    asked = raw.expect(Auth)
    assert (asked.code, asked.method) == (0x18, METHOD)
    raw.send(encode_auth(Auth(0x18, METHOD, scram.final(asked.data or b""))))
    connack = raw.expect(ConnAck)
    if not connack.code:
        assert connack.fields.auth_method == METHOD
        assert scram.knows(connack.fields.auth_data or b"")
    return raw, connack


def test_a_client_of_mqtt_5_shows_that_it_knows_the_password_and_has_its_user_s_permissions(
    house: BrokerProcess,
) -> None:
    raw, connack = let_in(house)
    assert connack.code == 0
    raw.subscribed("of/ann")
    assert raw.subscribe("of/bob").codes == (0x87,)
    assert raw.published("of/ann", b"x").code == 0
    assert raw.message().payload == b"x"
    raw.close()


@pytest.mark.parametrize(
    ("user", "password"), [("ann", "wrong"), ("nobody", "secret"), ("old", "secret"), ("bob", "secret")]
)
def test_nobody_else_of_mqtt_5_is_let_in(house: BrokerProcess, user: str, password: str) -> None:
    raw, connack = let_in(house, user, password)
    assert (connack.code, connack.fields.reason_string) == (0x87, "wrong user name or password")
    raw.wait_end()


def test_the_user_name_has_to_be_that_of_the_authentication(house: BrokerProcess) -> None:
    assert let_in(house, username="ann")[1].code == 0
    assert let_in(house, username="bob")[1].code == 0x87


def test_what_does_not_belong_there_ends_the_connection(house: BrokerProcess) -> None:
    scram = ScramClient("ann", "secret", header="p=tls-unique,,")
    raw = begun(house, scram)
    assert raw.expect(ConnAck).code == 0x87
    raw = Raw(house.ports["mqtt"], connect=False)
    raw.send(encode_connect(Connect(5, "c", True, auth_method="GS2-KRB5", auth_data=b"x")))
    assert raw.expect(ConnAck).code == 0x8C
    raw = begun(house, ScramClient("ann", "secret"))
    raw.expect(Auth)
    raw.publish("of/ann", b"x", 1)
    raw.wait_end()
    raw = begun(house, ScramClient("ann", "secret"))
    raw.expect(Auth)
    raw.send(encode_auth(Auth(0x18, "OTHER", b"x")))
    raw.wait_end()
    for first in (Auth(0x18, METHOD, b"x"), Auth(0x19, "OTHER", b"x")):
        raw, _ = let_in(house)
        raw.send(encode_auth(first))
        assert raw.wait_disconnect().code == 0x82


def test_a_client_shows_again_who_it_is_while_everything_else_goes_on(house: BrokerProcess) -> None:
    raw, _ = let_in(house)
    raw.subscribed("of/ann")
    for _ in range(2):
        scram = ScramClient("ann", "secret")
        raw.send(encode_auth(Auth(0x19, METHOD, scram.first())))
        asked = raw.expect(Auth)
        assert asked.code == 0x18
        assert raw.published("of/ann", b"between").code == 0
        raw.send(encode_auth(Auth(0x18, METHOD, scram.final(asked.data or b""))))
        done = raw.expect(Auth)
        assert (done.code, done.method) == (0, METHOD)
        assert scram.knows(done.data or b"")
        assert raw.message().payload == b"between"
    raw.close()


@pytest.mark.parametrize(("user", "password"), [("ann", "wrong"), ("bob", "hidden")])
def test_who_fails_then_or_is_another_is_disconnected(house: BrokerProcess, user: str, password: str) -> None:
    raw, _ = let_in(house)
    scram = ScramClient(user, password)
    raw.send(encode_auth(Auth(0x19, METHOD, scram.first())))
    raw.send(encode_auth(Auth(0x18, METHOD, scram.final(raw.expect(Auth).data or b""))))
    assert raw.wait_disconnect().code == 0x87


def test_a_client_without_enhanced_authentication_may_send_no_auth(house: BrokerProcess) -> None:
    raw = Raw(house.ports["mqtt"], username="ann", password=b"secret")
    raw.send(encode_auth(Auth(0x19, METHOD, ScramClient("ann", "secret").first())))
    assert raw.wait_disconnect().code == 0x82


def test_the_same_password_is_taken_in_clear(house: BrokerProcess) -> None:
    for user in ("ann", "old"):
        client = Paho(house.ports["mqtt"], "p", user=(user, "secret"))
        assert client.connack.value == 0
        client.close()
        Pika(house.ports["amqp"], credentials=pika.PlainCredentials(user, "secret")).close()


@pytest.mark.skipif(
    shutil.which("node") is None or not (NODE_MODULES / "mqtt").exists(), reason="node and mqtt.js are not installed"
)
@pytest.mark.parametrize(("password", "expected"), [("secret", [True, [0, 0x87]]), ("wrong", 0x87)])
def test_mqtt_js_shows_that_it_knows_the_password(house: BrokerProcess, password: str, expected: object) -> None:
    script = Path(__file__).parent / "browser" / "scram.js"
    command = ["node", str(script), f"mqtt://127.0.0.1:{house.ports['mqtt']}", "ann", password]
    env = {**os.environ, "NODE_PATH": str(NODE_MODULES)}
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert json.loads(ran.stdout or "null") == expected, ran.stdout + ran.stderr


# -- AMQP --------------------------------------------------------------------------------------------------------------


def converse(raw: AmqpRaw, scram: ScramClient) -> None:
    assert METHOD in raw.greet().mechanisms.split()
    able: dict[str, Any] = {"capabilities": dict.fromkeys(CAPABILITIES, True)}
    raw.do(Connection.StartOk(able, METHOD, scram.first().decode()), 0)


def test_a_client_of_amqp_shows_that_it_knows_the_password(house: BrokerProcess) -> None:
    for version in ("0-9-1", "0-9", "0-8"):
        raw, scram = AmqpRaw(house.ports["amqp"], version, connect=False), ScramClient("ann", "secret")
        converse(raw, scram)
        asked = raw.expect(Connection.Secure, 0)
        raw.do(Connection.SecureOk(scram.final(asked.challenge.encode()).decode()), 0)
        assert scram.knows(raw.expect(Connection.Secure, 0).challenge.encode())
        raw.do(Connection.SecureOk(""), 0)
        raw.tune()
        raw.open()
        raw.open_channel()
        raw.close()


@pytest.mark.parametrize(("user", "password"), [("ann", "wrong"), ("nobody", "secret"), ("old", "secret")])
def test_nobody_else_of_amqp_is_let_in(house: BrokerProcess, user: str, password: str) -> None:
    raw, scram = AmqpRaw(house.ports["amqp"], connect=False), ScramClient(user, password)
    converse(raw, scram)
    asked = raw.expect(Connection.Secure, 0)
    raw.do(Connection.SecureOk(scram.final(asked.challenge.encode()).decode()), 0)
    closed = raw.expect(Connection.Close, 0)
    assert closed.reply_code == 403
    assert "wrong user name or password" in closed.reply_text


def test_scram_is_offered_where_somebody_can_use_it(start: BrokerFactory) -> None:
    users = f'[auth.users]\nold = "{hash_password("secret")}"\n'
    broker = start(f'[listeners.amqp]\nurl = "amqp://127.0.0.1:0"\n{users}')
    raw = AmqpRaw(broker.ports["amqp"], connect=False)
    assert raw.greet().mechanisms == "PLAIN AMQPLAIN"
    raw.do(Connection.StartOk({}, METHOD, "n,,n=old,r=x"), 0)
    raw.expect(Connection.Close, 0)
