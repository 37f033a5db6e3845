"""What an operator may do about one consumer: over HTTP, and by the command line."""

from __future__ import annotations

from bench.wires.packets import encode_publish
from tests.interop.console_stage import house as house
from tests.interop.console_stage import move
from tests.interop.console_stage import slow as slow
from tests.interop.process import BrokerProcess
from tests.interop.raw import Message, Raw
from tests.interop.waiting import until
from typer.testing import CliRunner

from headway.cli.app import app


def test_a_client_that_is_skipped_goes_on_at_the_end_and_why_tells_who_did_it(
    house: BrokerProcess, slow: Raw, name: str
) -> None:
    status, told = move(house, client=f"slow-{name}", move="skip")
    assert status == 200, told
    (verdict,) = (one for one in house.verdicts(f"slow-{name}") if one["cause"] == "operator")
    assert verdict["text"] == told["text"]
    assert "skipped to the end by an operator" in told["text"]
    until(lambda: house.consumer(f"slow-{name}")["lag_records"] == 0, what="nothing waits any more")
    with Raw(house.port) as publisher:
        publisher.send(encode_publish(f"desk/{name}", b"the next", version=5))
    while (message := slow.expect(Message)).payload != b"the next":
        pass
    assert int(dict(message.properties.user)["gap-records"]) > 0
    assert move(house, client=f"slow-{name}", move="skip")[0] == 409, "nothing waits"
    assert move(house, client="nobody", move="skip")[0] == 404
    assert move(house, client=f"slow-{name}", move="dance")[0] == 400
    assert house.call("/v1/moves", "POST", '{"move": "skip", "client": "nobody"}')[0] == 415, "not as JSON"


def test_a_client_is_conflated_once_and_given_patience(house: BrokerProcess, slow: Raw, name: str) -> None:
    assert move(house, client=f"slow-{name}", move="patience", patience="10m")[0] == 200
    assert move(house, client=f"slow-{name}", move="patience", patience="soon")[0] == 400
    assert move(house, client=f"slow-{name}", move="conflate")[0] == 200
    asked = [one["action"] for one in house.verdicts(f"slow-{name}") if one["cause"] == "operator"]
    assert [one["name"] or one["kind"] for one in asked] == ["conflate", "patience"]
    assert sum(house.consumer(f"slow-{name}")["gap_records"].values()) > 0


def test_the_command_line_makes_the_same_moves(house: BrokerProcess, slow: Raw, name: str) -> None:
    def run(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["consumer", *words, "--admin", house.admin])
        return done.exit_code, done.output

    code, said = run("patience", f"slow-{name}", "10m")
    assert (code, "patience by an operator" in said) == (0, True), said
    assert run("skip", f"slow-{name}", "--filter", "other/#")[0] != 0
    code, said = run("skip", f"slow-{name}", "--filter", f"desk/{name}")
    assert (code, "skipped to the end by an operator" in said) == (0, True), said
    assert run("conflate", f"slow-{name}")[0] == 2, "nothing waits"
    code, said = run("kick", f"slow-{name}")
    assert (code, "disconnected by an operator" in said) == (0, True), said
    assert run("kick", f"slow-{name}")[0] == 2
