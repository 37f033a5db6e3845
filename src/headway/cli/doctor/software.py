"""Software: versions of Python, Headway and what it needs; of Java and Spark, where Spark is installed or asked for."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib import metadata

from headway import __version__
from headway.cli.doctor.finding import Finding, bad, good
from headway.core.base import ConfigError
from headway.pipeline.java import check_java
from headway.server.config import Settings

EXTRAS = {"telemetry": "pyarrow", "otel": "opentelemetry-exporter-otlp-proto-http", "spark": "pyspark"}
"""Extras, and the package by which one knows that it is installed."""
_TABLES = {"telemetry": "[telemetry]", "otel": "[traces]", "spark": "[views]"}
"""The tables of the config that ask for them."""
_BASE = "headway"


def software(settings: Settings) -> Iterator[Finding]:
    yield good("python", f"{platform.python_version()} ({platform.python_implementation()})")
    yield from _packages()
    wanted = {
        "telemetry": settings.telemetry.enabled, "otel": settings.traces.enabled, "spark": bool(settings.views)
    }  # fmt: skip
    for extra, package in EXTRAS.items():
        yield from _extra(extra, package, wanted=wanted[extra])


def _packages() -> Iterator[Finding]:
    """Compares what is installed with what this version of Headway needs."""
    try:
        needed = metadata.requires(_BASE) or []
    except metadata.PackageNotFoundError:
        yield good("headway", f"{__version__}, from a folder of sources")
        return
    missing = []
    for line in needed:
        requirement, _, marker = line.partition(";")
        if "extra" in marker:
            continue
        name = _name_of(requirement)
        try:
            metadata.version(name)
        except metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        yield bad("headway", f"{__version__} lacks {', '.join(missing)}", f"pip install 'headway=={__version__}'")
    else:
        yield good("headway", f"{__version__}, with all that it needs")


def _name_of(requirement: str) -> str:
    """Returns ``pyjwt`` of ``pyjwt>=2.10``."""
    end = next((at for at, char in enumerate(requirement) if not (char.isalnum() or char in "-_.")), len(requirement))
    return requirement[:end]


def _extra(extra: str, package: str, *, wanted: bool) -> Iterator[Finding]:
    install = f"pip install 'headway[{extra}]'"
    try:
        version = metadata.version(package)
    except metadata.PackageNotFoundError:
        if wanted:
            yield bad(extra, f"the config has {_TABLES[extra]}, and {package} is not installed", install)
        else:
            yield good(extra, f"not installed, and not asked for ({install})")
        return
    yield good(extra, f"{package} {version}")
    if extra == "spark":
        try:
            yield good("java", str(check_java()))
        except ConfigError as error:
            text, _, mend = str(error).rpartition(": ")
            yield bad("java", text, mend)
