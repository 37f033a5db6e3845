"""A subscription that is made once more, all the same."""

from __future__ import annotations

from tests.core.stage import Stage

from headway.core.message.record import Record


def test_what_is_retained_comes_again_to_who_has_read_all() -> None:
    stage = Stage()
    stage.broker.publish(stage.monitor.session, [Record("t", b"1 retained", retain=True).run()], stage.now)
    reader = stage.consumer("reader", "t")
    stage.turn()
    reader.subscribe("t")
    stage.turn()
    assert reader.numbers == [1, 1]
