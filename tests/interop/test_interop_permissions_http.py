"""Permissions over HTTP: records, cursors, writers and the admin API, each allowed, denied, and revoked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Any

import pytest
from tests.interop.conftest import BrokerFactory
from tests.interop.permitted import SECRET, config, denied, paho, permission, reload
from tests.interop.process import BrokerProcess
from tests.interop.test_interop_writers import arrow, plain
from tests.interop.waiting import until

ALICE = {
    "subscribe": ["prices/#"], "publish": ["prices/%u", "done/%c"], "declare": ["$cursor/%u", "$writer/%u"],
}  # fmt: skip
FORBIDDEN = 403


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("journal")


@pytest.fixture(scope="module")
def guarded(start: BrokerFactory, journal: Path) -> BrokerProcess:
    broker = start(given(journal))
    root = paho(broker, "root")
    for topic in ("prices/a", "prices/b", "secret/a"):
        for number in range(3):
            root.publish(topic, str(number), 1)
    root.close()
    return broker


@pytest.fixture(autouse=True)
def restored(guarded: BrokerProcess, journal: Path) -> Iterator[None]:
    """Permissions that a test has revoked are given back."""
    before = guarded.config.read_text()
    yield
    if guarded.config.read_text() != before:
        reload(guarded, given(journal))


def given(journal: Path, alice: dict[str, list[str]] = ALICE) -> str:
    topics = "".join(f'[[topic]]\nfilter = "{topic}"\nkeep = "7d"\n' for topic in ("prices/#", "secret/#", "done/#"))
    more = f'[journal]\npath = "{journal}"\n{topics}'
    return config(permission("alice", **alice), permission("bob", admin=["read"]), more=more)


def ask(broker: BrokerProcess, user: str, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
    broker.login = f"{user}:{SECRET}"
    return broker.call(path, method, json.dumps(body) if isinstance(body, dict) else body)


def error(answer: tuple[int, bytes]) -> str:
    assert answer[0] == FORBIDDEN, answer
    return str(json.loads(answer[1])["error"])


def test_records(guarded: BrokerProcess) -> None:
    for topic in ("prices/a", "prices/%23", "prices/+"):
        status, body = ask(guarded, "alice", "GET", f"/v1/topics/{topic}/records?format=json")
        assert status == 200
        assert body.count(b"\n") >= 3
    for topic in ("secret/a", "%23", "secret/%23", "+/a", "$SYS/x"):
        answer = ask(guarded, "alice", "GET", f"/v1/topics/{topic}/records?format=json")
        assert "alice may not subscribe to" in error(answer), topic
    assert ask(guarded, "carol", "GET", "/v1/topics/prices/a/records?format=json")[0] == FORBIDDEN


def test_only_what_may_be_read_is_listed(guarded: BrokerProcess) -> None:
    for user, filters in (("alice", ["prices/#"]), ("root", ["prices/#", "secret/#", "done/#"]), ("carol", [])):
        status, body = ask(guarded, user, "GET", "/v1/topics")
        assert status == 200
        assert sorted(one["filter"] for one in json.loads(body)["topics"]) == sorted(filters)
    status, body = ask(guarded, "alice", "GET", "/v1/topics/none/records")
    assert status == FORBIDDEN
    assert b"secret" not in ask(guarded, "alice", "GET", "/v1/topics/prices/a/records?from=x")[1]


@pytest.mark.parametrize("path", [
    "/v1/state/secret/a?order_by=(((&where=(((", "/v1/state/secret/a?nonsense=1",
    "/v1/topics/secret/a/records?from=nonsense",
])
def test_rights_are_asked_for_before_options_are_read(guarded: BrokerProcess, path: str) -> None:
    assert "may not subscribe to 'secret/a'" in error(ask(guarded, "alice", "GET", path))


@pytest.mark.parametrize("topic", ["secret/a", "unrecorded"])
def test_rights_are_asked_for_before_a_cursors_wishes_are_read(guarded: BrokerProcess, topic: str) -> None:
    wish = {"topic": topic, "offset": 1, "patience": "nonsense", "policy": "nonsense"}
    assert f"subscribe to '{topic}'" in error(ask(guarded, "alice", "PUT", "/v1/cursors/alice", wish))


def test_cursors(guarded: BrokerProcess, journal: Path) -> None:
    wish = {"topic": "prices/#", "offset": 1 << 40}
    assert ask(guarded, "alice", "PUT", "/v1/cursors/alice", wish)[0] == 200
    assert "declare '$cursor/bob'" in error(ask(guarded, "alice", "PUT", "/v1/cursors/bob", wish))
    secret = wish | {"topic": "secret/#"}
    assert "subscribe to 'secret/#'" in error(ask(guarded, "alice", "PUT", "/v1/cursors/alice", secret))
    for method, path in (("POST", "/v1/cursors/alice/leave"), ("DELETE", "/v1/cursors/alice")):
        assert ask(guarded, "bob", method, path)[0] == FORBIDDEN
    reload(guarded, given(journal, {**ALICE, "subscribe": ["other"]}))
    status, body = ask(guarded, "alice", "PUT", "/v1/cursors/alice", wish)
    assert (status, json.loads(body)["reason"]) == (409, "not_authorized")  # it is told once that the cursor has ended
    assert ask(guarded, "alice", "PUT", "/v1/cursors/alice", wish)[0] == FORBIDDEN
    reload(guarded, given(journal))
    assert ask(guarded, "alice", "PUT", "/v1/cursors/alice", wish)[0] == 200
    assert ask(guarded, "alice", "DELETE", "/v1/cursors/alice")[0] == 204


@pytest.mark.parametrize(("user", "told"), [("alice", True), ("carol", False), ("carol, operator", True)])
def test_a_cursor_tells_how_much_waits_only_to_who_may_read_all_that_is_counted(
    start: BrokerFactory, tmp_path: Path, user: str, told: bool
) -> None:
    """The recorded topics that its filter overlaps are counted, also what others publish there."""
    name, wish = user.partition(",")[0], {"topic": "prices/a", "offset": 1, "policy": "newest"}
    more = f'[journal]\npath = "{tmp_path / "journal"}"\n[[topic]]\nfilter = "prices/#"\nkeep = "7d"\n' + """
        [[policy]]
        name = "newest"
        topics = ["nobody"]
        rule = [{ when = { lag_records = "> 20" }, then = { action = "discard", which = "oldest", keep_records = 10 } }]
        [[policy]]
        name = "strict"
        topics = ["nobody"]
        rule = [{ when = { lag_records = "> 5" }, then = "disconnect" }]
    """
    carol = {"subscribe": ["prices/a"], "declare": ["$cursor/carol"]}
    carol |= {"admin": ["read"]} if "operator" in user else {}
    broker = start(config(permission("alice", **ALICE), permission("carol", **carol), more=more))
    root = paho(broker, "root")

    def published(count: int) -> None:
        for _ in range(count):
            root.publish("prices/b", "other", 1)

    def put() -> tuple[int, dict[str, Any]]:
        status, body = ask(broker, name, "PUT", f"/v1/cursors/{name}", wish)
        return status, json.loads(body)

    published(5)
    status, answer = put()
    lag = {"lag_records", "lag_bytes"}
    assert (status, answer.keys() & lag) == (200, lag if told else set())
    published(30)
    gap = until(lambda: put()[1]["gap"], what="records are discarded")
    assert gap.keys() == ({"reason", "records", "text"} if told else {"reason"})
    wish["policy"] = "strict"
    status, answer = until(lambda: (found := put())[0] != 200 and found, what="the cursor is cut")
    assert (status, any(map(str.isdigit, answer["error"]))) == (409, told), answer
    root.close()


def test_a_cursor_that_waits_is_told_when_it_is_revoked(guarded: BrokerProcess, journal: Path) -> None:
    answers: list[tuple[int, bytes]] = []
    alice = copy(guarded)  # with a login of its own
    alice.login = f"alice:{SECRET}"
    wish = json.dumps({"topic": "prices/#", "offset": 1 << 40, "wait_ms": 10_000})
    waiting = threading.Thread(target=lambda: answers.append(alice.call("/v1/cursors/alice", "PUT", wish)))
    waiting.start()
    until(lambda: ask(guarded, "root", "GET", "/v1/consumers?client=alice")[1].count(b"prices"), what="the cursor")
    reload(guarded, given(journal, {**ALICE, "subscribe": ["other"]}))
    root = paho(guarded, "root")
    root.publish("prices/a", "more", 1)
    waiting.join(60)
    assert answers[0][0] in (FORBIDDEN, 409)
    root.close()
    reload(guarded, given(journal))


def test_writers(guarded: BrokerProcess, journal: Path) -> None:
    rows = plain("prices/alice", [b"1", b"2"])
    status, body = ask(guarded, "alice", "POST", "/v1/writers/alice/parts", rows)
    assert status == 201
    part = json.loads(body)["part"]
    status, body = ask(guarded, "alice", "PUT", "/v1/writers/alice/batches/1", {"parts": [part], "wait_ms": 10_000})
    assert (status, json.loads(body)["refused"]) == (200, "")
    assert "declare '$writer/bob'" in error(ask(guarded, "alice", "POST", "/v1/writers/bob/parts", rows))
    mixed = arrow([("prices/alice", None, None, b"1"), ("prices/bob", None, None, b"2")])
    assert "publish to 'prices/bob'" in error(ask(guarded, "alice", "POST", "/v1/writers/alice/parts", mixed))
    assert ask(guarded, "alice", "POST", "/v1/writers/alice/parts", plain("done/alice", [b"1"]))[0] == 201
    assert ask(guarded, "carol", "DELETE", "/v1/writers/alice")[0] == FORBIDDEN


def test_a_writer_that_is_revoked_publishes_nothing_that_is_staged(guarded: BrokerProcess, journal: Path) -> None:
    status, body = ask(guarded, "alice", "POST", "/v1/writers/alice/parts", plain("prices/alice", [b"never"]))
    assert status == 201
    part = json.loads(body)["part"]
    reload(guarded, given(journal, {**ALICE, "publish": ["done/%c"]}))
    answer = ask(guarded, "alice", "PUT", "/v1/writers/alice/batches/7", {"parts": [part], "wait_ms": 10_000})
    assert "alice may not publish to 'prices/alice'" in json.loads(answer[1])["refused"]
    assert b"never" not in ask(guarded, "root", "GET", "/v1/topics/prices/alice/records?format=json")[1]
    reload(guarded, given(journal))


def test_the_admin_api(guarded: BrokerProcess) -> None:
    before = denied(guarded, "admin")
    expected = {"root": (200, 200, 404), "bob": (200, 200, FORBIDDEN), "alice": (FORBIDDEN,) * 3}
    for user, answers in expected.items():
        asked = (("GET", "/v1/consumers"), ("POST", "/v1/preview"), ("DELETE", "/v1/clients/nobody"))
        assert tuple(ask(guarded, user, *one, "" if "preview" in one[1] else None)[0] for one in asked) == answers, user
    assert denied(guarded, "admin") == before + 4


def test_without_users_everybody_is_nobody_in_particular(start: BrokerFactory) -> None:
    broker = start(permission(subscribe=["#"]))
    assert broker.call("/v1/broker")[0] == FORBIDDEN
    assert broker.call("/v1/topics")[0] == 200
