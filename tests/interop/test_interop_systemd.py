"""A broker under a real systemd: the unit that comes with it, in a user manager of its own, in namespaces of its own.
It starts, is ready, reloads, is restarted when it hangs, and stops. Left out of the unit is what needs a mount
namespace within that one; system calls, capabilities and memory are restricted as it says.

Only for root in a container without systemd: elsewhere the machine's own manager has the control groups."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

UNIT = Path(__file__).parents[2] / "packaging" / "systemd" / "headway.service"
MANAGER = Path("/lib/systemd/systemd")
MOUNTS = re.compile(
    r"^(User|Group|ConfigurationDirectory|StateDirectory|CacheDirectory|StateDirectoryMode|CacheDirectoryMode|DevicePolicy"
    r"|Private\w+|ProcSubset|Protect\w+)=.*\n", re.MULTILINE,
)  # fmt: skip
UNSHARE = ["unshare", "--pid", "--fork", "--mount", "--mount-proc", "--cgroup", "--kill-child"]
SCRIPT = """
set -u
export HOME={folder} XDG_RUNTIME_DIR={folder}/run
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system $XDG_RUNTIME_DIR
{manager} --user --unit=basic.target &
manager=$!
ctl() {{ timeout 30 systemctl --user "$@"; }}
shown() {{ ctl show {unit} --property "$1" --value; }}
until_is() {{ for _ in $(seq 300); do [ "$(shown "$1")" = "$2" ] && break; sleep 0.1; done; echo "$1 $(shown "$1")"; }}
for _ in $(seq 100); do ctl daemon-reload && break; sleep 0.1; done
ctl start {unit}; echo started $?
echo status "$(shown StatusText)"
grep -E 'Seccomp:|NoNewPrivs|CapBnd' /proc/$(shown MainPID)/status
cp {folder}/bad.toml {folder}/headway.toml
ctl reload {unit}; echo reloaded $?
for _ in $(seq 300); do case "$(shown StatusText)" in *'was not read'*) break;; esac; sleep 0.1; done
echo status "$(shown StatusText)"
cp {folder}/good.toml {folder}/headway.toml
kill -STOP $(shown MainPID)
until_is NRestarts 1
until_is ActiveState active
ctl stop {unit}; echo stopped $?
until_is ActiveState inactive
echo result "$(shown Result)" "$(shown ExecMainStatus)"
kill $manager
wait $manager
"""
GOOD = """
[server]
admin = "http://127.0.0.1:0"
[listeners.mqtt]
url = "mqtt://127.0.0.1:0"
[pool]
disk_path = "{folder}"
[journal]
path = "{folder}/journal"
"""


def can_be_had() -> bool:
    if os.getuid() or not MANAGER.exists() or Path("/run/systemd/system").exists() or shutil.which("unshare") is None:
        return False
    return subprocess.run([*UNSHARE, "mount", "--make-rprivate", "/"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not can_be_had(), reason="no systemd can be started here, or the machine has one")
def test_systemd_starts_reloads_watches_and_stops_the_unit(tmp_path: Path) -> None:
    unit = f"headway-{os.getpid()}.service"
    units = tmp_path / ".config" / "systemd" / "user"
    units.mkdir(parents=True)
    command = f"ExecStart={sys.executable} -m headway serve --config {tmp_path}/headway.toml"
    text = re.sub(r"^ExecStart=.*$", command, MOUNTS.sub("", UNIT.read_text()), flags=re.MULTILINE)
    assert "SystemCallFilter" in text
    (units / unit).write_text(text.replace("WatchdogSec=30s", "WatchdogSec=4s"))
    for name in ("headway.toml", "good.toml"):
        (tmp_path / name).write_text(GOOD.format(folder=tmp_path))
    (tmp_path / "bad.toml").write_text("[server]\nnonsense = 1\n")
    script = tmp_path / "script"
    script.write_text(SCRIPT.format(folder=tmp_path, manager=MANAGER, unit=unit))
    done = subprocess.run([*UNSHARE, "bash", str(script)], capture_output=True, text=True, timeout=150, check=False)
    said = [line.split() for line in done.stdout.splitlines() if not line.startswith("status")]
    status = [line.removeprefix("status ") for line in done.stdout.splitlines() if line.startswith("status")]
    told = {line[0].rstrip(":"): line[1:] for line in said if line}
    assert told["started"] == ["0"], done
    assert status[0] == "ready; connections: 0, consumers behind: 0"
    assert (told["Seccomp"], told["NoNewPrivs"], told["CapBnd"]) == (["2"], ["1"], ["0" * 16])
    assert told["reloaded"] == ["0"]
    assert "the config was not read" in status[1]
    assert told["NRestarts"] == ["1"], "the watchdog ended it, and it began anew"
    assert told["stopped"] == ["0"]
    assert (told["ActiveState"], told["result"]) == (["inactive"], ["success", "0"]), done
