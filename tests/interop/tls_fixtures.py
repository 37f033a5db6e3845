"""Fixtures of the TLS tests, whose modules name this one in ``pytest_plugins``."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from tests.certificates import make
from tests.interop.conftest import BrokerFactory
from tests.interop.tls_house import CONFIG, House

from headway.cli.certs import make_certificates


@pytest.fixture(scope="module")
def tls_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certs")
    for user in ("alice", "bob"):
        make_certificates(folder, user=user)
    make(folder, "rsa", ca="ca", hosts=("localhost",), with_rsa=True)
    make(folder, "other", ca="ca", hosts=("other.example", "*.wild.example"))
    make(folder, "late", ca="ca", ends=timedelta(days=-2), hosts=("localhost",))
    make(folder, "nobody", ca="ca", common_name=None)
    make(folder, "stranger")
    return folder


@pytest.fixture(scope="module")
def house(start: BrokerFactory, tls_folder: Path) -> House:
    """Tests share it, so each takes names of its own."""
    config = CONFIG.format(folder=tls_folder)
    return House(start(config, server={"admin": "https://127.0.0.1:0"}), tls_folder, tls_folder / "ca.pem")
