"""The history's writer: nothing on the loop waits for it, a disk that fails costs little, and it is told."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.interop.waiting import holds

from headway.core.base import Cause, ConfigError, Reason
from headway.core.policy.meters.sample import Sample
from headway.core.policy.rules.rule import Action, ActionKind
from headway.core.policy.verdicts import DecisionKind, Verdict, VerdictBook
from headway.server.admin.metrics import verdict_family
from headway.server.config.reading import parse_settings
from headway.server.config.settings import HistorySettings
from headway.server.connections.ends import End
from headway.server.engine import history as module
from headway.server.engine.history import HistoryWriter
from headway.store.history import EntryKind, HistoryEntry, Query, Series, search

PATIENCE_S = 20.0
ALL = Query(kinds=tuple(EntryKind))


def verdict(number: int, client: str = "display-7", **more: Any) -> Verdict:
    values: dict[str, Any] = {
        "number": number, "time_s": 1.0, "wall_s": 1_795_000_000.0 + number, "client": client, "filter": "s/#",
        "listener": "mqtt", "policy": "p", "rule": 1, "kind": DecisionKind.FIRE,
        "action": Action(ActionKind.DISCONNECT), "reason": Reason.BLOCKED, "cause": Cause.NETWORK, "enforced": True,
        "readings": (), "window_s": 0.0, "held_s": 2.0, "sample": Sample(), "text": f"{client} was too slow",
    }  # fmt: skip
    return Verdict(**{**values, **more})


def end(number: int, admitted: bool = True) -> End:
    wall_s = 1_795_000_000.5 + number
    return End(wall_s, "display-7", "alice", "mqtt", "127.0.0.1:9", 3.0, admitted, Reason.BLOCKED, "x")


def entries(folder: Path, query: Query = ALL) -> list[HistoryEntry]:
    return [found.entry for found in search(folder, query) if found is not None]


def run(folder: Path, story: Callable[[HistoryWriter], Coroutine[Any, Any, None]]) -> None:
    """Plays a story with a writer, and stops it."""

    async def play() -> None:
        loop = asyncio.get_running_loop()
        writer = HistoryWriter(HistorySettings(True, folder, 86_400.0, 1_000_000), loop, loop.time)
        writer.start(parse_settings(""))
        try:
            async with asyncio.timeout(PATIENCE_S):
                await story(writer)
        finally:
            writer.stop()

    asyncio.run(play())


class Disk:
    """A disk that fails as long as it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = True
        append = Series.append

        def limited(series: Series, lines: bytes, wall_s: float) -> None:
            if self.full:
                raise OSError(errno.ENOSPC, "No space left on device")
            append(series, lines, wall_s)

        monkeypatch.setattr(Series, "append", limited)


def test_verdicts_and_ends_are_in_the_files_within_a_second_without_being_asked_for(tmp_path: Path) -> None:
    async def story(writer: HistoryWriter) -> None:
        writer.add_verdict(verdict(1), "alice")
        writer.add_end(end(1))
        await holds(lambda: writer.written_entries >= 2)
        assert writer.bytes > 0

    run(tmp_path, story)
    last, first = entries(tmp_path)
    assert (first.kind, first.client, first.user, first.policy, first.rule) == ("verdict", "display-7", "alice", "p", 1)
    assert (first.action, first.enforced, first.cause, first.reason) == ("disconnect", True, "network", "blocked")
    assert (first.time, first.text) == ("2026-11-18T11:06:41.000Z", "display-7 was too slow")
    assert (last.kind, last.user, last.address, last.lasted_s, last.admitted) == (
        "end", "alice", "127.0.0.1:9", 3.0, True,
    )  # fmt: skip
    assert first.run == last.run
    assert module.WRITE_S <= 0.5


def test_the_last_ones_are_written_when_it_is_stopped(tmp_path: Path) -> None:
    async def story(writer: HistoryWriter) -> None:
        for number in range(100):
            writer.add_verdict(verdict(number), "")

    run(tmp_path, story)
    assert [one.number for one in entries(tmp_path)] == [*range(99, -1, -1)]


def test_a_full_disk_loses_nothing_that_there_is_room_for_and_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Disk(monkeypatch)
    caplog.set_level(logging.INFO, "headway")

    async def story(writer: HistoryWriter) -> None:
        writer.add_verdict(verdict(1), "")
        await writer.flush(PATIENCE_S)
        writer.add_verdict(verdict(2), "")
        await writer.flush(PATIENCE_S)
        assert (writer.errors, writer.last_error) == (2, "No space left on device")
        assert [one.number for one in writer.unwritten()] == [2, 1]
        disk.full = False
        await writer.flush(PATIENCE_S)
        assert (writer.written_entries, writer.dropped_entries, writer.last_error) == (2, 0, "")

    run(tmp_path, story)
    assert [one.number for one in entries(tmp_path)] == [2, 1]
    told = [record.getMessage() for record in caplog.records]
    assert sum("No space left on device" in line for line in told) == 1
    assert told[-1] == f"history: {tmp_path} can be written again"


def test_what_waits_for_a_full_disk_is_limited_and_the_latest_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    monkeypatch.setattr(module, "UNWRITTEN_MAX", 10)

    async def story(writer: HistoryWriter) -> None:
        for number in range(8):
            writer.add_verdict(verdict(number), "")
        await writer.flush(PATIENCE_S)
        for number in range(8, 15):
            writer.add_verdict(verdict(number), "")
        await writer.flush(PATIENCE_S)
        assert writer.dropped_entries == 5
        disk.full = False
        await writer.flush(PATIENCE_S)

    run(tmp_path, story)
    assert [one.number for one in entries(tmp_path)] == [*range(14, 4, -1)]


def test_a_failing_series_does_not_cost_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append = Series.append

    def no_ends(series: Series, lines: bytes, wall_s: float) -> None:
        if b'"kind":"end"' in lines:
            raise OSError(errno.EIO, "Input/output error")
        append(series, lines, wall_s)

    monkeypatch.setattr(Series, "append", no_ends)

    async def story(writer: HistoryWriter) -> None:
        writer.add_end(end(1))
        writer.add_verdict(verdict(1), "")
        await writer.flush(PATIENCE_S)
        assert (writer.written_entries, writer.last_error) == (1, "Input/output error")
        assert [one.kind for one in writer.unwritten()] == ["end"]

    run(tmp_path, story)
    assert [one.kind for one in entries(tmp_path)] == ["verdict"]


def test_who_was_never_let_in_cannot_fill_it(tmp_path: Path) -> None:
    async def story(writer: HistoryWriter) -> None:
        for number in range(1000):
            writer.add_end(end(number, admitted=False))
        for number in range(1000, 1030):
            writer.add_end(end(number))
        await writer.flush(PATIENCE_S)

    run(tmp_path, story)
    kept = entries(tmp_path)
    assert sum(one.admitted is False for one in kept) == module.STRANGERS_MAX
    assert sum(one.admitted is True for one in kept) == 30


def test_ends_do_not_push_verdicts_out(tmp_path: Path) -> None:
    async def story(writer: HistoryWriter) -> None:
        writer.add_verdict(verdict(1), "")
        for number in range(10_000):
            writer.add_end(end(number))
            if number % 2_000 == 0:
                await writer.flush(PATIENCE_S)

    run(tmp_path, story)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 1_000_000
    assert len(entries(tmp_path, Query(kinds=(EntryKind.END,)))) < 10_000
    assert [one.number for one in entries(tmp_path, Query())] == [1]


def test_two_brokers_cannot_have_one_folder(tmp_path: Path) -> None:
    async def story(writer: HistoryWriter) -> None:
        loop = asyncio.get_running_loop()
        with pytest.raises(ConfigError, match="another broker writes there"):
            HistoryWriter(HistorySettings(True, tmp_path, 1.0, 1_000_000), loop, loop.time)

    run(tmp_path, story)
    run(tmp_path, story)  # the first has let go of it


def test_an_entry_of_a_discard_and_of_a_plugged_in_action_shows_as_the_verdict_did(tmp_path: Path) -> None:
    plugged = Action(ActionKind.PLUGIN, name="page_me")

    async def story(writer: HistoryWriter) -> None:
        writer.add_verdict(verdict(1, action=plugged, kind=DecisionKind.CLEAR, cause=None, enforced=False), "")

    run(tmp_path, story)
    (one,) = entries(tmp_path)
    shown = one.verdict()
    assert shown["action"] == {"kind": "plugin", "which": None, "name": "page_me"}
    assert (shown["kind"], shown["cause"], shown["enforced"], shown["rule"]) == ("clear", None, False, 1)


@pytest.mark.parametrize(
    ("text", "enabled", "folder"),
    [
        ("", False, "history"),
        ('[journal]\npath = "/j"\n', True, "/j"),
        ('[journal]\npath = "/j"\nenabled = false\n', False, "history"),
        ('[journal]\npath = "/j"\n[history]\nenabled = false\n', False, "/j"),
        ('[journal]\npath = "/j"\n[history]\npath = "/h"\n', True, "/h"),
        ("[history]\n", True, "history"),
        ('[history]\nkeep = "2d"\ndisk = "5MB"\npath = "/h"\n', True, "/h"),
    ],
)
def test_it_is_on_where_there_is_a_journal_or_a_table_of_its_own(text: str, enabled: bool, folder: str) -> None:
    history = parse_settings(text).history
    assert (history.enabled, history.folder) == (enabled, Path(folder))
    assert (history.keep_s, history.bytes_max) == (
        (172_800.0, 5_000_000) if "2d" in text else (30 * 86_400.0, 64_000_000)
    )


def test_verdicts_are_counted_by_cause_action_and_whether_they_were_enforced() -> None:
    book = VerdictBook(per_client=1)
    for number in range(3):
        book.add(verdict(number))
    book.add(verdict(4, enforced=False))
    book.add(verdict(5, cause=None, action=Action(ActionKind.PLUGIN, name="page_me")))
    book.add(verdict(6, kind=DecisionKind.CLEAR, cause=None))
    told = {tuple(sample.labels.values()): sample.value for sample in verdict_family(book.counts).samples}
    assert told == {
        ("network", "disconnect", "true"): 3.0, ("network", "disconnect", "false"): 1.0,
        ("none", "plugin", "true"): 1.0,
    }  # fmt: skip
