"""Addresses of admin APIs, with the login of whoever asks, as people write them: on the command line, in options of
Spark.

A login stands in the address (``http://alice:secret@127.0.0.1:9883``; a token as a password without a name,
``http://:TOKEN@...``) or in the environment, from where it is put into the address: so it goes with it to other
processes and machines. Nothing that people read shows more than the address itself.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

from headway.core.base import ConfigError

ADMIN_URL = "http://127.0.0.1:9883"
"""The address of the admin API unless the config says otherwise."""
USER, PASSWORD, TOKEN = "HEADWAY_USER", "HEADWAY_PASSWORD", "HEADWAY_TOKEN"
LOG_IN = f"set {USER} and {PASSWORD}, or {TOKEN} (or write http://USER:PASSWORD@HOST:PORT)"


class Endpoint(NamedTuple):
    """The address of an admin API, and the login for it."""

    url: str
    """The address without the login."""
    headers: dict[str, str]
    """Headers with the login."""


def read_admin_url(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """Returns the address without a slash at its end, and with a login if there is any; a host and port alone will do.
    Raises ConfigError."""
    full = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(full)
        sound = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        sound = False
    if not sound or not full.isprintable() or " " in full or parts.query or parts.fragment:
        shown = json.dumps(text.rpartition("@")[2], ensure_ascii=not text.isprintable())
        raise ConfigError(f"{shown} is not the address of an admin API, such as {ADMIN_URL}")
    if "@" not in parts.netloc:
        parts = parts._replace(netloc=_login(environment) + parts.netloc)
    return parts.geturl().rstrip("/")


def default_admin_url() -> str:
    return read_admin_url(ADMIN_URL)


def endpoint(url: str) -> Endpoint:
    """Takes an address apart. ``url``: from :func:`read_admin_url`."""
    parts = urlsplit(url)
    login, at, place = parts.netloc.rpartition("@")
    bare = parts._replace(netloc=place).geturl()
    if not at:
        return Endpoint(bare, {})
    name, _, password = login.partition(":")
    if not name:
        return Endpoint(bare, {"Authorization": f"Bearer {unquote(password)}"})
    pair = f"{unquote(name)}:{unquote(password)}".encode()
    return Endpoint(bare, {"Authorization": f"Basic {base64.b64encode(pair).decode()}"})


def _login(environment: Mapping[str, str]) -> str:
    """Returns the login as it stands in front of the host. Raises ConfigError."""
    token, user = environment.get(TOKEN, ""), environment.get(USER, "")
    if token:
        return f":{quote(token, safe='')}@"
    if not user:
        return ""
    if PASSWORD not in environment:
        raise ConfigError(f"{USER} is set and {PASSWORD} is not: it takes both")
    return f"{quote(user, safe='')}:{quote(environment[PASSWORD], safe='')}@"
