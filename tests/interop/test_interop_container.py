"""The image and the compose file: whatever they name is there, and fits together. There is seldom a daemon where tests
run, so the files are read, and the parts that can run without one are run."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.interop.process import BrokerProcess

from headway.core.base import parse_duration
from headway.server.config import Settings, parse_settings

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "packaging" / "docker"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
yaml = pytest.importorskip("yaml")


class Step(NamedTuple):
    """An instruction of the Dockerfile."""

    word: str
    rest: str
    stage: int


@cache
def steps() -> list[Step]:
    text = re.sub(r"\\\n\s*", "", (FOLDER / "Dockerfile").read_text())
    found: list[Step] = []
    stage = -1
    for line in text.splitlines():
        if line and not line.startswith("#"):
            word, _, rest = line.partition(" ")
            stage += word == "FROM"
            found.append(Step(word, rest, stage))
    return found


def of(word: str, stage: int | None = None) -> list[str]:
    return [step.rest for step in steps() if step.word == word and stage in (None, step.stage)]


def only(word: str) -> Any:
    """The JSON of an instruction that is there once, in the last stage."""
    (rest,) = of(word, steps()[-1].stage)
    return json.loads(rest[rest.index("[") :])


def config() -> Settings:
    return parse_settings((FOLDER / "headway.toml").read_text())


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    return found


def test_what_is_copied_exists_and_is_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for rest in of("COPY"):
        *sources, _ = [word for word in shlex.split(rest) if not word.startswith("--")]
        for source in sources:
            if "--from=" in rest:
                assert any(source in run for run in of("RUN", 0))
            else:
                assert (ROOT / source).exists(), source
                assert f"!{source}" in ignored
    assert PROJECT["readme"] in of("COPY")[0]


def test_the_extras_and_the_command_are_the_packages() -> None:
    extras = {name for run in of("RUN") for found in re.findall(r"\.\[([\w,]+)\]", run) for name in found.split(",")}
    assert extras
    assert extras <= PROJECT["optional-dependencies"].keys()
    (command,) = only("ENTRYPOINT")
    assert command in PROJECT["scripts"]
    python = of("FROM")[-1].split(":")[1].split("-")[0]
    least = PROJECT["requires-python"].removeprefix(">=")
    assert [int(part) for part in python.split(".")] >= [int(part) for part in least.split(".")]
    assert len({image.split()[0] for image in of("FROM")}) == 1, "an environment is of one Python"


def test_the_config_is_in_order_and_where_the_command_reads_it() -> None:
    settings = config()
    assert only("CMD") == ["serve", "--config", "/etc/headway/headway.toml"]
    assert any(rest.endswith(" /etc/headway/headway.toml") for rest in of("COPY"))
    assert {str(table.url.port) for table in settings.listeners.values()} == set(of("EXPOSE")[0].split())
    made = " ".join(of("RUN", 1))
    volumes = only("VOLUME")
    for path in (str(settings.journal.folder), str(settings.pools[""].disk_path)):
        volume = next(one for one in volumes if path == one or path.startswith(f"{one}/"))
        assert f" {volume} " in made
    assert of("USER")[-1] != "root"
    assert re.search(rf"useradd --system .* {of('USER')[-1]} ", made)


def test_the_health_check_asks_this_broker(broker: BrokerProcess) -> None:
    _, option, code = only("HEALTHCHECK")
    address = str(config().server.admin)
    assert f"'{address}/healthz'" in code
    for url, status in ((broker.admin, 0), ("http://127.0.0.1:1", 1)):
        command = [sys.executable, option, code.replace(address, url)]
        assert subprocess.run(command, capture_output=True, check=False).returncode == status


def test_the_compose_file_fits_the_image() -> None:
    service = compose()["services"]["headway"]
    build = service["build"]
    assert (FOLDER / build["context"]).resolve() == ROOT
    assert (ROOT / build["dockerfile"]).samefile(FOLDER / "Dockerfile")
    ports = [port.split(":") for port in service["ports"]]
    assert all(host == "127.0.0.1" for host, _, _ in ports), "everybody may do everything there"
    assert {inside for _, _, inside in ports} == set(of("EXPOSE")[0].split())
    mounts = [volume.split(":") for volume in service["volumes"]]
    named = {source: target for source, target, *_ in mounts if "/" not in source}
    assert named.keys() == compose()["volumes"].keys()
    assert set(named.values()) == set(only("VOLUME"))
    files = [(source, target) for source, target, *_ in mounts if "/" in source]
    assert [target for _, target in files] == [only("CMD")[-1]]
    assert all((FOLDER / source).is_file() for source, _ in files)
    server = config().server
    assert parse_duration(service["stop_grace_period"]) > server.drain_s + server.stop_timeout_s
    assert service["read_only"]
