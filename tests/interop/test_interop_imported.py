"""A broker that is started with an imported config: its consumers have the policies of the file, and are told why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.interop.pahos import Paho, properties
from tests.interop.process import BrokerProcess
from tests.interop.waiting import until
from tests.migration.imported import imported

POLICY = """<broker xmlns="http://activemq.apache.org/schema/core">
<destinationPolicy><policyMap><policyEntries>
 <policyEntry topic="stocks.us.>">
  <pendingMessageLimitStrategy><constantPendingMessageLimitStrategy limit="50"/></pendingMessageLimitStrategy>
 </policyEntry>
 <policyEntry topic="orders.*">
  <slowConsumerStrategy><abortSlowConsumerStrategy maxSlowDuration="300" abortConnection="true"/></slowConsumerStrategy>
 </policyEntry>
</policyEntries></policyMap></destinationPolicy>
</broker>"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder: Path = tmp_path_factory.mktemp("imported")
    running = BrokerProcess(folder, imported(folder, ("activemq.xml", POLICY)).text)
    yield running
    running.stop()


def test_each_subscription_has_the_policy_of_its_destination(broker: BrokerProcess) -> None:
    client = Paho(broker.port, "reader")
    try:
        for filter in ("stocks/us/#", "orders/eu", "orders/eu/de", "news"):
            client.subscribe(filter)
        policies = {
            filter: broker.consumer("reader", filter)["policy"]
            for filter in ("stocks/us/#", "orders/eu", "orders/eu/de", "news")
        }
    finally:
        client.close()
    assert policies == {
        "stocks/us/#": "topic stocks.us.>", "orders/eu": "topic orders.*", "orders/eu/de": "everything else",
        "news": "everything else",
    }  # fmt: skip


def test_who_acknowledges_nothing_is_cut_as_the_file_says(broker: BrokerProcess) -> None:
    stuck = Paho(broker.port, "stuck", connect=properties("CONNECT", ReceiveMaximum=2, SessionExpiryInterval=0))
    writer = Paho(broker.port, "writer")
    try:
        stuck.client.manual_ack_set(True)
        stuck.subscribe("orders/eu", 1)
        for number in range(10):
            writer.publish("orders/eu", str(number), 1)
        until(lambda: stuck.ended, what="its connection ends")
    finally:
        stuck.close()
        writer.close()
    verdict = broker.verdicts("stuck")[0]
    assert (verdict["policy"], verdict["action"]["kind"]) == ("topic orders.*", "disconnect")
    assert verdict["reason"] == "credit_exhausted"
