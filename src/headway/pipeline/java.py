"""Java: Spark runs on it, and it is the one thing pip does not bring."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

from headway.core.base import ConfigError

JAVA_MIN = 17


def check_java() -> Path:
    """The ``java`` that Spark will use: that of JAVA_HOME, or else the first in PATH.

    Raises ConfigError, with the command that helps on this system, where there is none or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if found is None:
        raise ConfigError(f"Spark needs Java {JAVA_MIN} or newer, and there is none here: {install_command()}")
    try:
        said = subprocess.run([found, "-version"], capture_output=True, text=True, check=False)
    except OSError:
        said = None
    version = _version(said.stderr + said.stdout) if said is not None and said.returncode == 0 else None
    whose = f"JAVA_HOME is {home}" if home else f"java is {found}"
    if version is None:
        wrong = "but no Java runs there"
    elif version < JAVA_MIN:
        wrong = f"which is Java {version}"
    else:
        return Path(found)
    raise ConfigError(f"Spark needs Java {JAVA_MIN} or newer; {whose}, {wrong}: {install_command()}")


def install_command() -> str:
    """The command that installs a new enough Java on this system."""
    sudo = "" if os.name != "posix" or os.geteuid() == 0 else "sudo "
    if shutil.which("apt-get"):
        return f"{sudo}apt-get install -y openjdk-{_debian_java()}-jre-headless"
    if shutil.which("dnf"):
        return f"{sudo}dnf install -y java-21-openjdk-headless"
    if shutil.which("brew"):
        return "brew install openjdk@21"
    return "install a Java runtime, and set JAVA_HOME to its folder"


def _debian_java() -> int:
    """The version to install: Debian 12 has 17 and not 21; from 13 on it is the other way round. Ubuntu has had 21
    since 20.04."""
    try:
        system = platform.freedesktop_os_release()
    except OSError:
        return JAVA_MIN
    if system.get("ID") == "debian" and system.get("VERSION_ID", "").partition(".")[0] in ("11", "12"):
        return JAVA_MIN
    return 21


def _version(text: str) -> int | None:
    """Reads 17 of ``openjdk version "17.0.15"``, 8 of ``java version "1.8.0_412"``."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match.group(1)) if match else None
