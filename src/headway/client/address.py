"""Addresses of admin APIs, with the login of whoever asks, as people write them: on the command line, in options of
Spark.

A login stands in the address (``http://alice:secret@127.0.0.1:9883``; a token as a password without a name,
``http://:TOKEN@...``) or in the environment, from where it is put into the address: so it goes with it to other
processes and machines. Nothing that people read shows more than the address itself.

With ``https://``, files of certificates stand in it as well: ``https://broker:9883?ca=ca.pem``, and ``certificate`` and
``key`` for a broker that asks for the client's. Without a ``ca``, the CAs of this machine are trusted.
"""

from __future__ import annotations

import base64
import json
import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from headway.core.base import ConfigError

ADMIN_URL = "http://127.0.0.1:9883"
"""The address of the admin API unless the config says otherwise."""
USER, PASSWORD, TOKEN = "HEADWAY_USER", "HEADWAY_PASSWORD", "HEADWAY_TOKEN"
LOG_IN = f"set {USER} and {PASSWORD}, or {TOKEN} (or write http://USER:PASSWORD@HOST:PORT)"


FILES = {"ca": "HEADWAY_CA", "certificate": "HEADWAY_CERTIFICATE", "key": "HEADWAY_KEY"}
"""Files of certificates: their names in an address, and those of the environment."""


class Endpoint(NamedTuple):
    """The address of an admin API, and the login for it."""

    url: str
    """The address alone."""
    headers: dict[str, str]
    """Headers with the login."""
    files: dict[str, str]
    """Files of certificates, by their names in ``FILES``."""

    def tls(self) -> ssl.SSLContext | None:
        """Returns how the broker is verified; None: it is asked without TLS. Raises ConfigError."""
        if not self.url.startswith("https:"):
            return None
        ca, certificate, key = (self.files.get(name) for name in FILES)
        try:
            context = ssl.create_default_context(cafile=ca)
            if certificate:
                context.load_cert_chain(certificate, key, password=_no_password)
        except ssl.SSLError as error:
            what = ca if not certificate else f"{certificate} and {key or 'its key'}"
            raise ConfigError(f"{what} cannot be used for {self.url}: {(error.reason or str(error)).lower()}") from None
        except OSError as error:
            named = ", ".join(self.files.values())
            raise ConfigError(f"{named} cannot be read: {(error.strerror or str(error)).lower()}") from None
        return context


def read_admin_url(text: str, environment: Mapping[str, str] = os.environ, ca: str | Path | None = None) -> str:
    """Returns the address without a slash at its end, and with a login and certificates if there are any; a host and
    port alone will do. Raises ConfigError."""
    full = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(full)
        sound = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        files = dict(parse_qsl(parts.query, strict_parsing=True)) if sound and parts.query else {}
        sound = sound and not files.keys() - FILES.keys()
    except ValueError:
        sound = False
    if not sound or not full.isprintable() or " " in full or parts.fragment:
        shown = json.dumps(text.rpartition("@")[2], ensure_ascii=not text.isprintable())
        raise ConfigError(f"{shown} is not the address of an admin API, such as {ADMIN_URL}")
    if "@" not in parts.netloc:
        parts = parts._replace(netloc=_login(environment) + parts.netloc)
    if parts.scheme == "https":
        known = {name: environment[variable] for name, variable in FILES.items() if environment.get(variable)}
        files = known | files | ({"ca": str(ca)} if ca else {})
    elif files or ca:
        raise ConfigError(f"certificates are for https://, and the address is http://{parts.netloc.rpartition('@')[2]}")
    return parts._replace(query=urlencode(files, safe="/"), path=parts.path.rstrip("/")).geturl()


def default_admin_url() -> str:
    return read_admin_url(ADMIN_URL)


def endpoint(url: str) -> Endpoint:
    """Takes an address apart. ``url``: from :func:`read_admin_url`."""
    parts = urlsplit(url)
    login, at, place = parts.netloc.rpartition("@")
    bare, files = parts._replace(netloc=place, query="").geturl(), dict(parse_qsl(parts.query))
    if not at:
        return Endpoint(bare, {}, files)
    name, _, password = login.partition(":")
    if not name:
        return Endpoint(bare, {"Authorization": f"Bearer {unquote(password)}"}, files)
    pair = f"{unquote(name)}:{unquote(password)}".encode()
    return Endpoint(bare, {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}, files)


def _no_password() -> str:
    raise ConfigError("the key of the certificate has a password, and nobody can be asked for it")


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
