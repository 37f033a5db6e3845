"""Worlds whose operator reloads the configuration once a second, beside 100,000 subscriptions."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.interop.process import BrokerProcess
from tests.soak.worlds import Setting, beside, mqtt, subscribe

CLIENTS, FILTERS = 100, 1000
EVERY_S = 1.0
REVOKED_AT = 5
"""The reload with which all those clients lose their subscriptions."""
PUBLISH, SUBSCRIBE = 'publish = ["#"]', 'subscribe = ["#"]'
PERMISSIONS = f"[[permission]]\n{PUBLISH}\n{SUBSCRIBE}\nadmin = [\"read\"]\n"
POLICY = '[[policy]]\nname = "lag"\n[[policy.rule]]\nwhen = { lag_records = 1_000_000 }\nthen = "notify"\n'


def other_permissions(text: str, number: int) -> str:
    """Each reload takes something away from everybody; once it is all subscriptions but the canary's."""
    fresh = text.replace(SUBSCRIBE, f'subscribe = ["canary", "{"#" if number % 2 else "there/#"}"]')
    return text.replace(SUBSCRIBE, 'subscribe = ["canary"]') if number == REVOKED_AT else fresh


def other_policies(text: str, number: int) -> str:
    return text.replace("1_000_000", f"1_000_{number:03}")


@contextmanager
def reloads(broker: BrokerProcess, changed: Callable[[str, int], str]) -> Iterator[None]:
    socks = []
    for client in range(CLIENTS):
        sock = mqtt(broker, f"there {client}")
        subscribe(sock, [f"there/{client}/{part}" for part in range(FILTERS)])
        socks.append(sock)
    text = broker.config.read_text()

    def reload(over: threading.Event) -> None:
        number = 0
        while not over.wait(EVERY_S):
            number += 1
            broker.config.write_text(changed(text, number))
            broker.signal(signal.SIGHUP)
        assert broker.log.read_text().count(" are in force") >= number - 1, "reloads that did not come about"

    with beside(reload):
        yield
    del socks


@contextmanager
def permissions(broker: BrokerProcess) -> Iterator[None]:
    """Each reload changes what everybody may read; the fifth revokes 100,000 subscriptions."""
    with reloads(broker, other_permissions):
        yield


@contextmanager
def policies(broker: BrokerProcess) -> Iterator[None]:
    """Each reload gives every consumer another policy."""
    with reloads(broker, other_policies):
        yield


WORLDS = {
    "reload": Setting(permissions, "1500MB", "256MB", PERMISSIONS),
    "reload policies": Setting(policies, "1500MB", "256MB", POLICY),
}
