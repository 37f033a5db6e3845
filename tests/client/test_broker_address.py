"""Addresses of brokers as people write them."""

from __future__ import annotations

import pytest

from headway.client.broker_address import read_broker_address
from headway.core.base import ConfigError


@pytest.mark.parametrize(
    ("url", "host", "port", "path", "login"),
    [
        ("mqtt://broker", "broker", 1883, None, (None, None)),
        ("mqtt://al%40x:s%3Ae@10.0.0.1:7", "10.0.0.1", 7, None, ("al@x", "s:e")),
        ("mqtt://:TOKEN@[::1]:7", "::1", 7, None, ("token", "TOKEN")),
        ("ws://broker", "broker", 8083, "/mqtt", (None, None)),
        ("ws://broker:1/feed", "broker", 1, "/feed", (None, None)),
        ("mqtts://broker", "broker", 8883, None, (None, None)),
        ("wss://broker", "broker", 8084, "/mqtt", (None, None)),
    ],
)
def test_what_an_address_says(url: str, host: str, port: int, path: str | None, login: tuple[str, str]) -> None:
    address = read_broker_address(url)
    assert (address.host, address.port, address.websocket_path) == (host, port, path)
    assert (address.user, address.password) == login
    assert (address.tls is not None) == url.startswith(("mqtts", "wss"))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("broker:1883", "'broker:1883' is not the address of a broker"),
        ("http://u:secret@broker", "'broker' is not the address"),
        ("mqtt://broker:99999", "is not the address"),
        ("mqtts://broker?cap=x", "is not the address"),
        ("mqtt://broker?ca=x", "certificates are for mqtts:// and wss://"),
        ("mqtts://broker?ca=/nowhere/ca.pem", "/nowhere/ca.pem cannot be used for broker: No such file"),
    ],
)
def test_what_is_none_is_said_without_the_login(url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        read_broker_address(url)
    assert "secret" not in str(caught.value)
