"""The command that makes certificates for trying out TLS."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from headway.cli.certs.certificates import make_certificates
from headway.cli.errors import plainly
from headway.core.base import ConfigError

NAME_CHARS_MAX = 64
"""The longest common name that X.509 has room for."""


@plainly
def certs(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Where the files go; it is made if it is not there.")
    ] = Path("certs"),
    host: Annotated[
        list[str] | None, typer.Option("--host", metavar="NAME", help="A name or address of the broker; repeatable.")
    ] = None,
    user: Annotated[str, typer.Option("--user", metavar="NAME", help="Whose the client's certificate is.")] = "client",
) -> None:
    """Make a CA, a server's and a client's certificate, for trying out TLS.

    What is there already is kept and used: run it again with another --user for one more client. The certificates are
    valid for a year. The CA's key is not protected, so do not use them where it matters.

    \b
    Examples:
      headway certs
      headway certs certs --host broker.example.org --host 10.0.0.7
      headway certs certs --user bob
    """
    if not user.strip() or not user.isprintable() or len(user) > NAME_CHARS_MAX or "/" in user or user[0] == ".":
        raise ConfigError(f"a user's name has up to {NAME_CHARS_MAX} printable characters without a /")
    if user in ("ca", "server"):
        raise ConfigError(f"{user}.pem is not a client's file: give the user another name")
    try:
        new = make_certificates(folder, host or [], user)
    except OSError as error:
        raise ConfigError(f"{error.filename or folder}: {(error.strerror or str(error)).lower()}") from None
    if host and not new["server"]:
        raise ConfigError(f"{folder / 'server.pem'} is there already, with the names it has: remove it first")
    made = ", ".join(f"{name}.pem" for name, is_new in new.items() if is_new)
    typer.echo(f"made in {folder}: {made or 'nothing, all was there'}")
    typer.echo(_advice(folder, user))


def _advice(folder: Path, user: str) -> str:
    at = shlex.quote(str(folder))
    name = shlex.quote(user)
    return f"""
In the broker's config (SIGHUP reads renewed files):

  [listeners.mqtts]
  url = "mqtts://127.0.0.1:8883"
  [listeners.mqtts.tls]
  certificate = "{folder}/server.pem"
  key = "{folder}/server-key.pem"
  # With these two, a client needs a certificate of this CA, and is the user that it names:
  # ca = "{folder}/ca.pem"
  # verify = "required"

And then:

  mosquitto_pub -h localhost -p 8883 --cafile {at}/ca.pem -t hello -m world
  mosquitto_pub -h localhost -p 8883 --cafile {at}/ca.pem -t hello -m me \\
      --cert {at}/{name}.pem --key {at}/{name}-key.pem"""
