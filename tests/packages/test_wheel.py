"""The wheel, installed into an empty environment: all that it needs comes with it, and its commands run there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.interop.pahos import paho
from tests.interop.waiting import PATIENCE_S, until
from tests.packages.wheels import COMPILES, SERVED, Environment, NoIndex, build, extras, run

CONFIG = SERVED + 'disk = "10MB"\ndisk_path = "{folder}"\n'


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    environment = Environment(tmp_path_factory.mktemp("empty") / "venv")
    try:
        environment.install(wheel)
    except NoIndex as away:
        pytest.skip(f"packages cannot be fetched here: {away}")
    return environment


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Path]:
    file = tmp_path / "own.toml"
    file.write_text(CONFIG.format(folder=tmp_path))
    return file


def test_it_has_all_of_its_files(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
    for name in ("py.typed", "server/config/defaults.toml", "client/javascript/headway-view.js", "embed/broker.py"):
        assert f"headway/{name}" in names
    assert not [name for name in names if name.startswith(("tests/", "demo/", "bench/", "examples/"))]


def test_every_extra_can_be_installed(wheel: Path, installed: Environment) -> None:
    """All are resolved at once, with the versions of the locks; ``make soak`` installs them, and Spark, which takes
    long to look into."""
    found = set(extras(wheel))
    assert {"demo", "bench", "telemetry", "otel", "proton", "spark", "notebook", "dev"} <= found
    said = installed.install(f"{wheel}[{','.join(sorted(found - {'spark'}))}]", only_resolve=True)
    assert "Would install" in said


def test_doctor_looks_at_it(installed: Environment, config: Path) -> None:
    ran = installed.headway("doctor", config, "--json")
    assert ran.code == 0, ran
    found = {one["subject"]: one for one in json.loads(ran.out)}
    assert found["headway"]["text"].endswith("with all that it needs")
    assert "not installed, and not asked for" in found["spark"]["text"]
    with config.open("a") as file:
        file.write("[telemetry]\n[traces]\n")
    ran = installed.headway("doctor", config, "--quiet")
    assert ran.code == 2
    for extra in ("telemetry", "otel"):
        assert f"pip install 'headway[{extra}]'" in ran.out


def test_it_serves(installed: Environment, config: Path, tmp_path: Path) -> None:
    ready = tmp_path / "ready.json"
    command = [installed.bin / "headway", "serve", "--config", config, "--ready-file", ready]
    with (tmp_path / "log").open("wb") as log:
        broker = subprocess.Popen(command, stdout=log, stderr=log, env=COMPILES)
    try:
        until(lambda: ready.exists() or broker.poll() is not None, what="the broker listens")
        assert broker.poll() is None, (tmp_path / "log").read_text()
        told = json.loads(ready.read_text())
        with paho(int(told["listeners"]["mqtt"].rpartition(":")[2]), "client") as client:
            client.subscribe("t", 1)
            client.publish("t", b"installed", 1)
            assert client.wait(1)[0].payload == b"installed"
        ran = installed.headway("top", "--once", "--admin", told["admin"])
        assert ran.code == 0, ran.err
        os.kill(broker.pid, signal.SIGTERM)
        assert broker.wait(PATIENCE_S) == 0
    finally:
        broker.kill()
        broker.wait()


def test_the_other_commands_run_too(installed: Environment) -> None:
    ran = installed.headway("demo")
    assert (ran.code, ran.err) == (2, "headway: the demo is not installed with headway: run make demo in a checkout\n")
    for command in (["man"], ["completion", "bash"]):
        ran = installed.headway(*command)
        assert (ran.code, ran.err) == (0, "")
    program = (
        "import asyncio\nfrom headway.embed import Broker\n"
        "async def main():\n  async with Broker() as b:\n    s = b.subscribe('t')\n"
        "    await b.publish('t', 'embedded')\n    print((await anext(s)).text())\nasyncio.run(main())"
    )
    ran = run(installed.python, "-c", program)
    assert (ran.out, ran.err) == ("embedded\n", "")
