"""The wheel as `pip install` takes it, and empty environments that it goes into (uv: from its cache where it can)."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import NamedTuple

CHECKOUT = Path(__file__).parents[2]
LOCKS = ("requirements.lock", "requirements-spark.lock", "requirements-proton.lock")
_AWAY = ("error sending request", "dns error", "Could not connect", "client error (Connect)")
SERVED = """
[server]
admin = "http://127.0.0.1:0"
[listeners.mqtt]
url = "mqtt://127.0.0.1:0"
[pool]
memory = "64MB"
"""
"""A config without the place of the disk, with which it ends."""
COMPILES = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""The environment in which Python keeps what it compiles: all that is installed is compiled once, not at each start."""


class NoIndex(Exception):
    """The packages that are not in the cache cannot be fetched here."""


class Ran(NamedTuple):
    code: int
    out: str
    err: str


def run(*command: str | Path, timeout_s: float = 600.0, folder: Path | None = None) -> Ran:
    words = [str(part) for part in command]
    ran = subprocess.run(words, env=COMPILES, capture_output=True, text=True, timeout=timeout_s, check=False,
                         cwd=folder)  # fmt: skip
    return Ran(ran.returncode, ran.stdout, ran.stderr)


def build(folder: Path) -> Path:
    """Builds the wheel."""
    ran = subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)], cwd=CHECKOUT,
                         capture_output=True, text=True, check=False)  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return next(folder.glob("*.whl"))


def extras(wheel: Path) -> list[str]:
    """Returns the extras that a wheel says it has."""
    with zipfile.ZipFile(wheel) as file:
        about = next(name for name in file.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(file.read(about).decode()).get_all("Provides-Extra") or []


class Environment:
    """An environment with nothing in it but what is installed here."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.python = self.bin / "python"
        made = _uv("venv", "--quiet", "--python", sys.executable, str(folder))
        assert made.code == 0, made.err

    def install(self, what: str | Path, *, only_resolve: bool = False) -> str:
        """Installs something, in the versions of the locks. Returns what uv says. Raises NoIndex."""
        locks = [part for lock in LOCKS for part in ("--constraint", str(CHECKOUT / lock))]
        dry = ["--dry-run"] if only_resolve else []
        ran = _uv("pip", "install", "--python", str(self.python), *locks, *dry, str(what))
        if ran.code and any(sign in ran.err for sign in _AWAY):
            raise NoIndex(ran.err.splitlines()[-1])
        assert ran.code == 0, ran.err
        return ran.err

    def headway(self, *arguments: str | Path) -> Ran:
        return run(self.bin / "headway", *arguments)


def _uv(*arguments: str) -> Ran:
    return run(sys.executable, "-m", "uv", *arguments)
