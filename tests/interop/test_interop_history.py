"""The history of a real broker: what was decided is known after a crash, to whoever may ask, whatever the disk does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from tests.interop.command import headway
from tests.interop.conftest import BrokerFactory
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw
from tests.interop.waiting import until
from tests.passwords import cheap_hash

from headway.store.history import EntryKind, decode_entry, files_of

POLICY = """
[[policy]]
name = "strict"
[[policy.rule]]
when = { blocked_time = "200ms" }
then = "notify"
[[policy.rule]]
when = { blocked_time = "500ms" }
then = "disconnect"
"""
SMALL = {"receive_buffer": 4096}


def config(folder: Path, more: str = "") -> str:
    return f'[journal]\npath = "{folder}"\n{more}' + POLICY


def asked(broker: BrokerProcess, **query: Any) -> list[dict[str, Any]]:
    status, body = broker.call(f"/v1/verdicts?{urlencode(query)}")
    assert status == 200, body
    return [json.loads(line) for line in body.splitlines()]


def cut_off(broker: BrokerProcess, client: str) -> None:
    """A client that does not read, until it is disconnected for it."""
    with Raw(broker.port, client, **SMALL) as stuck, Raw(broker.port, f"{client}-publisher") as publisher:
        stuck.subscribed(f"{client}/#")
        publisher.publish_all(f"{client}/a", [b"x" * 2000] * 500)
        until(lambda: any(one["action"]["kind"] == "disconnect" for one in broker.verdicts(client)), what="a verdict")


def in_files(folder: Path, kind: EntryKind) -> list[Any]:
    lines = [line for path in files_of(folder, kind) for line in path.read_bytes().splitlines()]
    return [entry for line in lines if (entry := decode_entry(line)) is not None]


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("journal")


@pytest.fixture(scope="module")
def killed(start: BrokerFactory, journal: Path) -> list[dict[str, Any]]:
    """The verdicts of a broker that was killed."""
    broker = start(config(journal), server={"send_buffer": "16KiB"})
    cut_off(broker, "display-7")
    cut_off(broker, "other")
    verdicts = broker.verdicts("display-7")
    until(lambda: len({one.client for one in in_files(journal, EntryKind.VERDICT)}) == 2, what="it is on disk")
    until(lambda: any(one.client == "other" for one in in_files(journal, EntryKind.END)), what="the ends, too")
    broker.kill()
    return verdicts


@pytest.fixture(scope="module")
def again(killed: list[dict[str, Any]], start: BrokerFactory, journal: Path) -> Iterator[BrokerProcess]:
    """The next one, with the same journal."""
    broker = start(config(journal), server={"send_buffer": "16KiB"})
    yield broker
    broker.stop()


def test_why_knows_after_a_crash_what_was_decided_before(
    again: BrokerProcess, killed: list[dict[str, Any]]
) -> None:
    answer = again.get("/v1/why/display-7")
    assert not answer["connected"]
    for now, before in zip(answer["verdicts"], killed, strict=True):
        for field in ("number", "client", "filter", "policy", "rule", "kind", "reason", "cause", "enforced", "readings",
                      "text"):  # fmt: skip
            assert now[field] == before[field], field
        assert now["action"]["kind"] == before["action"]["kind"]
    (end,) = answer["ends"]
    assert (end["reason"], end["admitted"]) == ("blocked", True)
    assert again.call("/v1/why/nobody")[0] == 404


def test_verdicts_by_client_cause_action_time_and_number(again: BrokerProcess) -> None:
    everything = asked(again)
    assert {one["client"] for one in everything} == {"display-7", "other"}
    times = [one["wall_s"] for one in everything]
    assert times == sorted(times, reverse=True)
    theirs = asked(again, client="display-7")
    assert theirs == [one for one in everything if one["client"] == "display-7"]
    assert asked(again, client="disp*") == theirs
    assert asked(again, client="display-7", action="disconnect")[0]["rule"] == 2
    cause = theirs[0]["cause"]
    assert asked(again, cause=cause) == [one for one in everything if one["cause"] == cause]
    assert asked(again, limit=1) == everything[:1]
    assert asked(again, since=times[0]) == everything[:1]
    assert asked(again, until=times[0] - 0.001) == everything[1:]
    assert asked(again, since="0") == []
    assert {one["kind"] for one in asked(again, kind="all")} == {"verdict", "end"}
    assert asked(again, kind="end", client="other")[0]["reason"] == "blocked"


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("since=soon", "is not a time such as"), ("cause=ghosts", "cause: one of network,"),
        ("action=hug", "unknown action"), ("limit=0", "limit: from 1 to 10,000"), ("limit=x", "limit: from 1"),
        ("kind=x", "kind: one of"), ("sinc=8h", "unknown parameter 'sinc'"),
    ],
)  # fmt: skip
def test_a_question_that_makes_no_sense_is_refused(again: BrokerProcess, query: str, says: str) -> None:
    status, body = again.call(f"/v1/verdicts?{query}")
    assert status == 400
    assert says in json.loads(body)["error"]


def test_what_was_just_decided_is_in_the_answer_and_counted(again: BrokerProcess) -> None:
    before = again.get("/v1/broker")["history"]
    cut_off(again, "fresh")
    decided = again.verdicts("fresh")
    assert [one["number"] for one in asked(again, client="fresh")] == [one["number"] for one in decided]
    page = again.call("/metrics")[1].decode()
    assert 'headway_verdicts_by_cause_total{action="disconnect"' in page
    assert "headway_history_failing 0.0" in page
    history = again.get("/v1/broker")["history"]
    assert history["written_entries"] > before["written_entries"]
    assert (history["dropped_entries"], history["last_error"]) == (0, "")


def test_the_command_shows_it_with_a_broker_and_without(
    again: BrokerProcess, journal: Path, tmp_path: Path
) -> None:
    file = tmp_path / "headway.toml"
    file.write_text(f'[history]\npath = "{journal}"\n')
    for where in (["--admin", again.admin], ["--config", str(file)]):
        ran = headway("verdicts", "--client", "display-7", *where, COLUMNS="200")
        assert ran.returncode == 0, ran.stderr
        assert "display-7 (display-7/#)" in ran.stdout
        assert "disconnect" in ran.stdout
        assert "no bytes taken for" in ran.stdout


def test_a_disk_that_fails_hurts_nobody_and_nothing_is_lost_when_it_is_back(
    start: BrokerFactory, tmp_path: Path
) -> None:
    folder = tmp_path / "history"
    broker = start(f'[history]\npath = "{folder}"\n' + POLICY, server={"send_buffer": "16KiB"})
    folder.rename(tmp_path / "gone")
    folder.write_bytes(b"in the way")
    cut_off(broker, "stuck")
    until(lambda: b"headway_history_failing 1.0" in broker.call("/metrics")[1], what="it is told")
    assert asked(broker, client="stuck", action="disconnect"), "what waits for the disk is found, too"
    with Raw(broker.port, "client") as client:
        client.subscribed("t").published("t", b"still here")
        assert client.message().payload == b"still here"
    folder.unlink()
    until(lambda: in_files(folder, EntryKind.VERDICT), what="the disk is back, and so are the entries")
    assert {one.client for one in in_files(folder, EntryKind.VERDICT)} == {"stuck"}
    broker.stop()
    assert broker.log.read_text().count("cannot be written: ") == 1


def test_without_a_history_it_answers_what_it_remembers(start: BrokerFactory) -> None:
    broker = start(POLICY, server={"send_buffer": "16KiB"})
    cut_off(broker, "stuck")
    assert "history" not in broker.get("/v1/broker")
    assert [one["number"] for one in asked(broker, client="st*")] == [
        one["number"] for one in broker.verdicts("stuck")
    ]  # fmt: skip
    broker.stop()


def test_who_may_not_read_is_not_answered(start: BrokerFactory) -> None:
    users = f'[auth.users]\nalice = "{cheap_hash("right")}"\nbob = "{cheap_hash("left")}"\n'
    broker = start(users + '[auth.admin]\nread = ["alice"]\n' + POLICY)
    assert broker.call("/v1/verdicts")[0] == 401
    broker.login = "bob:left"
    assert broker.call("/v1/verdicts")[0] == 403
    broker.login = "alice:right"
    assert broker.call("/v1/verdicts")[0] == 200
    broker.stop()


def test_a_folder_that_cannot_be_had_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    config = tmp_path / "headway.toml"
    config.write_text('[server]\nadmin = false\n[listeners.mqtt]\nurl = "mqtt://127.0.0.1:0"\n'
                      f'[pool]\ndisk_path = "{tmp_path}"\n[history]\npath = "{tmp_path}/file"\n')
    answer = headway("serve", "-c", str(config))
    assert answer.returncode == 2, answer.stderr
    assert answer.stderr.startswith(f"headway: history.path {tmp_path}/file: cannot write there")
    assert answer.stderr.count("\n") == 1
