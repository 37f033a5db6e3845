"""Reports are listed and served; nothing else of the disk is, whatever the name."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.interop.waiting import holds
from tests.server.served import serve

from headway.server.admin.api import Admin
from headway.server.console import reports
from headway.server.console.reports import listed

REPORT = "<!DOCTYPE html>\n<html><head><meta charset='utf-8'><meta name='headway-report' content='{}'>{}</head></html>"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With two reports, and what is none."""
    folder = tmp_path / "reports"
    write(folder / "health" / "report.html", REPORT.format("health", ""), 1000)
    write(folder / "lab.html", REPORT.format("lab", "x" * 1_000_000), 2000)
    write(folder / "other.html", "<html>of somebody else</html>", 3000)
    write(folder / "lab.txt", REPORT.format("lab", ""), 3000)
    write(folder / "a" / "b" / "deep.html", REPORT.format("lab", ""), 3000)
    write(tmp_path / "outside" / "secret.html", REPORT.format("lab", "secret"), 3000)
    (folder / "link.html").symlink_to(tmp_path / "outside" / "secret.html")
    (folder / "linked").symlink_to(tmp_path / "outside")
    (folder / "folder.html").mkdir()
    os.mkfifo(folder / "pipe.html")
    return folder


def write(path: Path, text: str, time_s: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (time_s, time_s))


async def get(served: Admin, path: str) -> tuple[int, str, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(served.url).port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), head.decode(), body


def test_reports_are_listed_newest_first_and_served(tmp_path: Path, folder: Path) -> None:
    async def play(served: Admin) -> None:
        status, _, body = await get(served, "/v1/reports")
        told = json.loads(body)
        assert (status, told["folder"], told["total"]) == (200, str(folder), 2)
        assert [(one["name"], one["kind"], one["wall_s"]) for one in told["reports"]] == [
            ("lab.html", "lab", 2000.0), ("health/report.html", "health", 1000.0)
        ]  # fmt: skip
        for one in told["reports"]:
            status, head, body = await get(served, f"/v1/reports/{one['name']}")
            assert (status, body) == (200, (folder / one["name"]).read_bytes())
            assert len(body) == one["bytes"]
            (policy,) = [line for line in head.splitlines() if line.startswith("Content-Security-Policy:")]
            assert "sandbox allow-scripts;" in policy
            assert "default-src 'none'" in policy
            assert "same-origin" not in policy, "it cannot use the login of who looks"
            assert "nosniff" in head

    serve(tmp_path, play, f'reports = "{folder}"')


@pytest.mark.parametrize("name", [
    "other.html", "lab.txt", "a/b/deep.html", "link.html", "linked/secret.html", "folder.html", "pipe.html",
    "../outside/secret.html", "..%2Foutside%2Fsecret.html", "%2e%2e/outside/secret.html", "health/..%2Flab.html",
    "%2Fetc%2Fpasswd", "/lab.html", "%2E/lab.html", "nothing.html", "lab.html%00.html", "lab.html/", "%ff.html",
    "x" * 600 + ".html", ".html",
])  # fmt: skip
def test_nothing_else_is_served(tmp_path: Path, folder: Path, name: str) -> None:
    async def play(served: Admin) -> None:
        status, _, body = await get(served, f"/v1/reports/{name}")
        assert status == 404
        assert b"secret" not in body

    serve(tmp_path, play, f'reports = "{folder}"')


def test_without_a_folder_nothing_is_listed_and_a_lost_one_is_named(tmp_path: Path) -> None:
    async def unset(served: Admin) -> None:
        status, _, body = await get(served, "/v1/reports")
        assert (status, json.loads(body)) == (200, {"folder": None, "reports": [], "total": 0})
        assert (await get(served, "/v1/reports/lab.html"))[0] == 404

    async def lost(served: Admin) -> None:
        status, _, body = await get(served, "/v1/reports")
        assert status == 500
        assert "server.reports: " in json.loads(body)["error"]

    serve(tmp_path, unset)
    serve(tmp_path, lost, f'reports = "{tmp_path / "nowhere"}"')


def test_a_large_folder_is_looked_at_in_part(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(50):
        write(folder / "many" / f"{number}.html", REPORT.format("lab", ""), number)
    assert len(listed(folder)) == 52
    monkeypatch.setattr(reports, "LOOKED_AT", 30)
    assert len(listed(folder)) < 30


def test_a_client_that_does_not_read_is_cut_and_its_file_closed(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "UNREAD_S", 0.2)
    write(folder / "lab.html", REPORT.format("lab", "x" * 30_000_000), 2000)

    def is_open() -> bool:
        fds = Path("/proc/self/fd")
        return any(str(folder / "lab.html") == os.path.realpath(one) for one in fds.iterdir())

    async def play(served: Admin) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(served.url).port, limit=1000)
        writer.write(b"GET /v1/reports/lab.html HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await holds(is_open)
        await holds(lambda: not is_open())
        taken = 0
        with suppress(ConnectionError):  # the reset may be seen as an end
            while piece := await reader.read(1 << 20):
                taken += len(piece)
        assert taken < 30_000_000, "it was cut"
        writer.close()

    serve(tmp_path, play, f'reports = "{folder}"')
