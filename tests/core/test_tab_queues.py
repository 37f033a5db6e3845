"""What is declared takes up memory that is nobody's: it counts in its pool, ends with it, and has a limit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.core.queues_stage import QueueStage

from headway.core.base.errors import Reason, Refused

SMALL = {"memory": "1MB", "disk": "0B", "free": "100KB"}


def test_queues_exchanges_and_bindings_count_until_they_are_no_more() -> None:
    stage = QueueStage()
    peer = stage.peer("one")
    declared = stage.broker.registry.declared
    empty, before = declared.bytes, stage.pool.clients_bytes
    sizes = [declared.bytes]
    peer.exchange("e", "topic")
    sizes.append(declared.bytes)
    peer.declare("q", exclusive=True)
    sizes.append(declared.bytes)
    peer.bind("q", "e", "a.b.c")
    sizes.append(declared.bytes)
    peer.bind("q", "e", "a.b.c")
    assert declared.bytes == sizes[-1], "it was bound so before"
    peer.bind("q", "e", "x" * 250, note="y" * 5000)
    sizes.append(declared.bytes)
    assert sizes == sorted(set(sizes))
    assert sizes[-1] - sizes[-2] > 5000
    peer.unbind("q", "e", "a.b.c")
    peer.delete("q")
    list(stage.broker.queues.delete_exchange("e", if_unused=False))
    assert (declared.bytes, stage.pool.clients_bytes) == (empty, before)


def test_what_ends_with_its_exchange_or_its_owner_counts_no_longer() -> None:
    stage = QueueStage()
    peer = stage.peer("one")
    empty = stage.broker.registry.declared.bytes
    peer.exchange("e", "topic")
    peer.exchange("f", "fanout", auto_delete=True)
    peer.declare("q", exclusive=True)
    peer.declare("r")
    peer.bind("q", "e", "k")
    peer.bind("q", "f")
    peer.bind("r", "e", "k")
    list(stage.broker.queues.delete_exchange("e", if_unused=False))
    peer.leave()
    assert "f" not in stage.broker.registry.router.exchanges.by_name
    peer = stage.peer("another")
    peer.delete("r")
    assert stage.broker.registry.declared.bytes == empty


@pytest.mark.parametrize("kind", ["queue", "exchange"])
def test_there_is_an_end_to_what_can_be_declared(kind: str) -> None:
    stage = QueueStage(**SMALL)
    peer = stage.peer("one")
    peer.declare("q0")

    declare: Callable[[str], object] = peer.declare if kind == "queue" else peer.exchange

    def declare_many() -> None:
        for number in range(1, 1000):
            declare(f"{kind}{number}")

    with pytest.raises(Refused) as refused:
        declare_many()
    assert refused.value.reason is Reason.CLIENT_MEMORY
    router = stage.broker.registry.router
    assert 20 < len(router.queues if kind == "queue" else router.exchanges.by_name) < 250
    with pytest.raises(Refused):
        peer.bind("q0", "amq.direct", "k" * 255, note="x" * 100_000)
    assert stage.broker.registry.declared.bytes <= stage.broker.registry.declared.limit
    peer.delete("q0")
    peer.declare("another")
