"""The example of a plug-in, installed, in a broker as people run it; and one that fails."""

from __future__ import annotations

import json
import shutil
import signal
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.interop.process import BrokerProcess
from tests.interop.raw import Raw
from tests.interop.waiting import until
from typer.testing import CliRunner

from headway.cli.app import app
from headway.core.policy import ACTIONS, CONDITIONS, METERS
from headway.server.config import parse_settings
from headway.store.toml import BadConfig

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugin"
SMALL = {"receive_buffer": 4096}
RULE = '[[policy]]\nname = "patience"\n[[policy.rule]]\n'
CONFIG = RULE + 'when = { catch_up_time = "1m", lag_records = 5 }\nthen = { action = "patience.trim", keep = 20 }\n'
FAILING = """
class Odd:
    unit = "count"
    def measure(self, look, now):
        raise LookupError("of the plug-in's own")

class Wild:
    options = {}
    def act(self, look, options, now):
        return [look.nothing]
"""


def install(folder: Path, project: Path) -> Path:
    """As pip does, without asking anybody: the file, and what is written about its distribution."""
    table = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    for source in project.glob("*.py"):
        shutil.copy(source, folder)
    info = folder / f"{table['name'].replace('-', '_')}-{table['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {table['name']}\nVersion: {table['version']}\n")
    (info / "entry_points.txt").write_text("".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in table["entry-points"].items()
    ))  # fmt: skip
    return folder


def failing(folder: Path) -> Path:
    """A project whose meter and action raise."""
    folder.mkdir()
    (folder / "headway_odd.py").write_text(FAILING)
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "headway-odd"\nversion = "2"\n[project.entry-points."headway.meters"]\nodd = '
        '"headway_odd:Odd"\ngone = "headway_odd:Gone"\n[project.entry-points."headway.actions"]\nwild = '
        '"headway_odd:Wild"\n'
    )
    return folder


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The example and the failing one, for this process and those it starts."""
    folder = tmp_path / "site"
    folder.mkdir()
    install(folder, EXAMPLE)
    install(folder, failing(tmp_path / "odd"))
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    yield folder
    meters, actions = ("catch_up_time", "odd", "gone"), ("patience.trim", "wild")
    tables = (METERS, meters), (CONDITIONS, ("patience.guest",)), (ACTIONS, actions)
    for names, plugged in tables:
        for name in plugged:
            names.pop(name, None)
    METERS.made.clear()


@pytest.fixture
def broker(installed: Path, tmp_path: Path) -> Iterator[BrokerProcess]:
    home = tmp_path / "broker"
    home.mkdir()
    more = RULE.replace("patience", "odd").replace("[[policy.rule]]", 'topics = ["odd/#"]\n[[policy.rule]]')
    odd = more + 'when = { odd = 1 }\nthen = "disconnect"\n[[policy.rule]]\nwhen = { lag_records = 5 }\nthen = "wild"\n'
    process = BrokerProcess(home, odd + CONFIG, server={"send_buffer": "16KiB"}, before=lambda: None)
    yield process
    process.kill()


def flood(writer: Raw, topic: str) -> None:
    writer.publish_all(topic, [b"x" * 1000] * 500)
    writer.published("flood/end")


def test_the_example_acts_on_who_is_stuck_and_on_nobody_else(broker: BrokerProcess) -> None:
    with (
        Raw(broker.port, "guest", **SMALL) as guest,
        Raw(broker.port, "good") as good,
        Raw(broker.port) as watcher,
        Raw(broker.port) as writer,
    ):
        watcher.subscribed("$SYS/headway/told/guest")
        guest.subscribed("t/1")
        good.subscribed("t/1")
        for _ in range(125):  # so few at once that whoever reads is never as far behind as the rule has it
            writer.publish_all("t/1", [b"x" * 1000] * 4)
            assert len(good.payloads(4)) == 4
        until(lambda: not broker.consumer("guest"), what="the guest is gone")
        disconnect = guest.wait_disconnect()
        assert disconnect.code == 0x97
        assert "catch_up_time " in str(disconnect.reason)
        assert "disconnected (you are a guest), as patience.trim has it," in str(disconnect.reason)
        told = json.loads(watcher.message().payload)
        assert (told["action"], told["text"]) == ("patience.trim", "a guest is behind")
        verdict = broker.verdicts("guest")[0]
        assert (verdict["reason"], verdict["action"]["name"]) == ("plugin", "patience.trim")
        assert verdict["sample"]["plugged"]["catch_up_time"] > 60
        assert broker.consumer("good")["lag_records"] == 0


def test_what_fails_is_logged_once_by_its_name_and_stops_nothing(broker: BrokerProcess) -> None:
    with Raw(broker.port, "stuck", **SMALL) as stuck, Raw(broker.port) as writer:
        stuck.subscribed("odd/1")
        flood(writer, "odd/1")

        def failures() -> dict[str, float]:
            page = broker.call("/metrics")[1].decode()
            families = {family.name: family for family in text_string_to_metric_families(page)}
            samples = families["headway_plugin_failures"].samples
            return {s.labels["plugin"]: s.value for s in samples if s.name.endswith("_total")}

        until(lambda: failures().get("odd", 0) > 5, what="the meter failed some more times")
        (verdict,) = broker.verdicts("stuck")
        assert "; wild failed and did nothing (AttributeError: " in verdict["text"]
        assert broker.consumer("stuck")["lag_records"] > 5
        log = broker.log.read_text()
        assert log.count("the plug-in odd failed") == log.count("LookupError: of the plug-in's own") == 1
        assert log.count("the plug-in wild failed") == 1
        assert failures()["wild"] == 1


def test_a_reload_finds_what_was_installed_since(broker: BrokerProcess, installed: Path) -> None:
    late = installed.parent / "late"
    late.mkdir()
    (late / "headway_late.py").write_text("class Seven:\n    unit = 'count'\n    def measure(self, look, now):\n"
                                          "        return 7\n")  # fmt: skip
    (late / "pyproject.toml").write_text(
        '[project]\nname = "late"\nversion = "1"\n[project.entry-points."headway.meters"]\nseven = "headway_late:Seven"'
    )
    broker.write(RULE + 'when = { seven = 5 }\nthen = "notify"\n')
    broker.signal(signal.SIGHUP)
    until(lambda: "unknown meter 'seven'" in broker.log.read_text(), what="it is not there yet")
    install(installed, late)
    broker.signal(signal.SIGHUP)
    until(lambda: "1 policies" in broker.log.read_text(), what="it is there")


def test_check_lists_what_is_plugged_in(installed: Path, tmp_path: Path) -> None:
    config = tmp_path / "headway.toml"
    config.write_text(CONFIG + '[[policy.rule]]\nwhen = { "patience.guest" = { lag_s = 5 } }\nthen = "notify"\n')
    result = CliRunner().invoke(app, ["check", str(config)])
    assert result.exit_code == 0, result.output
    lines = [" ".join(line.split()) for line in result.output.splitlines()]
    assert "plug-in catch_up_time meter of headway-patience 1.0" in lines
    assert "plug-in patience.guest condition of headway-patience 1.0" in lines
    assert "plug-in patience.trim action of headway-patience 1.0" in lines


@pytest.mark.parametrize(("rule", "message"), [
    ('when = { catch_up_tim = 5 }\nthen = "notify"', "unknown meter 'catch_up_tim' (did you mean catch_up_time?)"),
    ('when = { zzz = 5 }\nthen = "notify"', "slow_fraction, catch_up_time, gone, odd, patience.guest, all, any)"),
    ('when = { lag_age = 5 }\nthen = "zzz"', "delete_subscription, patience.trim, wild)"),
    ('when = { gone = 5 }\nthen = "notify"', "rule 1: gone of headway-odd 2 cannot be loaded (AttributeError: "),
    ('when = { lag_age = 5 }\nthen = { action = "patience.trim", kept = 5 }', "option of patience.trim 'kept'"),
])  # fmt: skip
def test_a_mistake_says_what_is_installed(installed: Path, rule: str, message: str) -> None:
    with pytest.raises(BadConfig) as error:
        parse_settings(RULE + rule)
    assert message in str(error.value)


def test_what_two_have_is_nobodys(installed: Path, tmp_path: Path) -> None:
    other = installed / "other-1.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1\n")
    (other / "entry_points.txt").write_text("[headway.meters]\ncatch_up_time = other:X\n")
    with pytest.raises(BadConfig, match=r"catch_up_time is plugged in more than once, by .*other 1"):
        parse_settings(CONFIG)
