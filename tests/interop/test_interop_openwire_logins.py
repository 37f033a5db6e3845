"""Logins and permissions of clients of JMS."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.interop.conftest import BrokerFactory
from tests.interop.jms_client import NON_PERSISTENT, Jms, JmsError, needs_jms
from tests.interop.openwire_fixtures import LISTENERS, url_of
from tests.interop.permitted import SECRET, config, permission, reload
from tests.interop.process import BrokerProcess
from tests.interop.waiting import until

pytestmark = needs_jms
SECURITY = "javax.jms.JMSSecurityException"
ALICE = permission(
    "alice", publish=["prices/#", "$queue/orders"], subscribe=["prices/#", "$queue/orders", "ActiveMQ/Advisory/#"],
    declare=["$queue/orders"],
)  # fmt: skip


LISTENER = LISTENERS.split("[listeners.amqp]", maxsplit=1)[0]


@pytest.fixture(scope="module")
def guarded(start: BrokerFactory) -> Iterator[BrokerProcess]:
    broker = start(config(ALICE, more=LISTENER))
    yield broker
    broker.stop()


@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", SECRET), (None, None)])
def test_a_wrong_login_is_a_security_exception(
    jms: Jms, guarded: BrokerProcess, user: str | None, password: str | None
) -> None:
    with pytest.raises(JmsError) as fault:
        jms.connect(url_of(guarded), user=user, password=password)
    assert fault.value.kind == SECURITY


def test_what_is_not_permitted_is_a_security_exception(jms: Jms, guarded: BrokerProcess) -> None:
    connection = jms.connect(url_of(guarded), user="alice", password=SECRET)
    session = jms.session(connection)
    consumer, producer = jms.consumer(session, "topic://prices.>"), jms.producer(session)
    orders = jms.consumer(session, "queue://orders")
    jms.send(producer, session, "x", "topic://prices.us,queue://orders")
    assert (jms.got(consumer).body, jms.got(orders).body) == ("x", "x")
    for wrong in ("topic://secrets", "queue://others"):
        with pytest.raises(JmsError) as fault:
            jms.consumer(session, wrong)
        assert fault.value.kind == SECURITY
        with pytest.raises(JmsError) as fault:
            jms.send(producer, session, "x", wrong)
        assert fault.value.kind == SECURITY
    jms.send(producer, session, "asynchronous", "topic://secrets", mode=NON_PERSISTENT)
    until(lambda: any(told.startswith(SECURITY) for told in jms.faults(connection)) or None)
    transacted = jms.session(connection, 0)
    jms.send(jms.producer(transacted), transacted, "permitted", "queue://orders")
    with pytest.raises(JmsError, match="rolled back"):
        _send_in_transaction(jms, transacted)
    assert jms.receive(orders, 200) is None
    _, there = jms.temporary(session)
    assert jms.send(producer, session, "to a temporary queue", there)
    jms.do("close", connection)


def _send_in_transaction(jms: Jms, session: str) -> None:
    jms.send(jms.producer(session), session, "x", "topic://secrets")
    jms.do("commit", session)


def test_what_only_its_library_follows_is_revoked_without_a_word(jms: Jms, guarded: BrokerProcess) -> None:
    """The application asked for nothing of it, so its connection goes on, as where it never had that right."""
    connection = jms.connect(url_of(guarded), user="alice", password=SECRET)
    session = jms.session(connection)
    orders, producer = jms.consumer(session, "queue://orders"), jms.producer(session)
    reload(guarded, config(ALICE.replace(', "ActiveMQ/Advisory/#"', ""), more=LISTENER))
    guarded.login = f"root:{SECRET}"
    until(lambda: "ActiveMQ/Advisory" not in str(guarded.get("/v1/consumers")), what="it is revoked")
    jms.send(producer, session, "x", "queue://orders")
    assert jms.got(orders).body == "x"
    assert not jms.faults(connection)
    jms.do("close", connection)
    reload(guarded, config(ALICE, more=LISTENER))
