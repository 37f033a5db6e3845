"""`headway doctor`: each trouble is found, and comes with the command that mends it; what is in order is said too."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from tests.server.canned import Ran

from headway.cli.doctor import State, machine
from headway.server.config.reading import parse_settings


def config(folder: Path, more: str = "", admin: str = "false", url: str = "mqtt://127.0.0.1:0", extra: str = "") -> str:
    return (
        f'[server]\nadmin = {admin}\n[listeners.mqtt]\nurl = "{url}"\n{extra}\n[pool]\nmemory = "64MB"\ndisk = "1MB"\n'
        f'disk_path = "{folder}"\n{more}\n'
    )


def doctor(folder: Path, text: str) -> tuple[int, dict[str, dict[str, str]]]:
    """Exit code, and the findings by subject."""
    file = folder / "own.toml"
    file.write_text(text)
    ran = Ran("doctor", str(file), "--json")
    return ran.code, {one["subject"]: one for one in json.loads(ran.out)}


def test_a_machine_in_order(tmp_path: Path) -> None:
    code, found = doctor(tmp_path, config(tmp_path, admin='"http://127.0.0.1:0"'))
    assert code == 0, found
    wanted = {"python", "headway", "telemetry", "spark", "descriptors", "memory", "pool.disk_path", "listeners.mqtt",
              "server.admin"}  # fmt: skip
    assert wanted <= found.keys()
    assert found["python"]["state"] == found["headway"]["state"] == "good"
    (tmp_path / "own.toml").write_text(config(tmp_path))
    ran = Ran("doctor", str(tmp_path / "own.toml"))
    assert "  listeners.mqtt" in ran.out
    assert "is free" in ran.out
    assert "is free" not in Ran("doctor", "--quiet", str(tmp_path / "own.toml")).out


def test_a_mistake_in_the_config_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text("[servr]\n")
    ran = Ran("doctor", str(file))
    assert (ran.code, ran.out) == (2, "")
    assert "servr" in ran.err


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, found = doctor(tmp_path, config(tmp_path, url=f"mqtt://127.0.0.1:{port}"))
    assert code == 2
    assert found["listeners.mqtt"]["state"] == "bad"
    assert found["listeners.mqtt"]["mend"] == f"sudo ss -ltnp 'sport = :{port}'"


def test_an_address_that_is_another_machines(tmp_path: Path) -> None:
    url = "mqtt://192.0.2.1:0"
    code, found = doctor(tmp_path, config(tmp_path, url=url, extra="allow_anonymous = true"))
    assert code == 2
    assert found["listeners.mqtt"]["mend"] == "ip address"


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "journal"
    code, found = doctor(tmp_path, config(tmp_path, f'[journal]\npath = "{folder}"\n'))
    assert code == 2
    assert "is not a folder" in found["journal.path"]["text"]
    assert found["journal.path"]["mend"].startswith("sudo install -d -o ")
    assert found["journal.path"]["mend"].endswith(str(folder))


def test_more_connections_than_files(tmp_path: Path) -> None:
    code, found = doctor(tmp_path, config(tmp_path, extra="connections_max = 1_000_000"))
    if found["descriptors"]["text"] == "no limit" or found["descriptors"]["state"] == "good":
        pytest.skip("a million files may be opened here")
    assert code == 2
    assert found["descriptors"]["mend"].startswith("LimitNOFILE=1000300")


def test_a_disk_smaller_than_the_pool(tmp_path: Path) -> None:
    code, found = doctor(tmp_path, config(tmp_path).replace('disk = "1MB"', 'disk = "900TB"'))
    assert code == 0  # it starts
    assert found["pool.disk_path"]["state"] == "doubtful"
    assert f"df -h {tmp_path}" in found["pool.disk_path"]["mend"]


def test_a_journal_on_a_disk_that_a_restart_empties(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda / ext4 rw 0 0\ntmpfs {tmp_path} tmpfs rw 0 0\n/dev/sdb {tmp_path}/kept xfs rw 0 0\n")
    for folder, state in (("gone", State.BAD), ("kept", None), ("kepti", State.BAD)):
        settings = parse_settings(config(tmp_path, f'[journal]\npath = "{tmp_path / folder}"\n'))
        found = [one for one in machine(settings, mounts=mounts) if one.subject == "journal.path"]
        assert [one.state for one in found if "tmpfs" in one.text] == ([state] if state else [])


def test_small_limits_of_the_kernel(tmp_path: Path) -> None:
    core = tmp_path / "net" / "core"
    core.mkdir(parents=True)
    (core / "somaxconn").write_text("128\n")
    (core / "wmem_max").write_text("4194304\n")
    found = {one.subject: one for one in machine(parse_settings(config(tmp_path)), sysctl=tmp_path)}
    assert found["net.core.somaxconn"].state is State.DOUBTFUL
    assert found["net.core.somaxconn"].mend == "sudo sysctl -w net.core.somaxconn=4096"
    assert found["net.core.wmem_max"].state is State.GOOD
