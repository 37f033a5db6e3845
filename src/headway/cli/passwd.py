"""`headway passwd`: a user's line, or a token's, for the config."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from headway.cli.options import plainly, say
from headway.core.base import ConfigError
from headway.server.config import PASSWORD_BYTES_MAX, hash_password, new_token
from headway.store.toml import toml_key


@plainly
def passwd(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The user's name.", show_default=False)],
    token: Annotated[bool, typer.Option("--token", help="A token of the admin API, for [auth.tokens].")] = False,
    scram: Annotated[bool, typer.Option("--scram", help="A hash for logins by SCRAM-SHA-256, too.")] = False,
) -> None:
    """Make a user's line for [auth.users]. Asks for the password, or reads one line when it is not typed.

    With --scram, the hash is one by which the user can also log in with SCRAM-SHA-256, which sends no password.
    With --token, a line for [auth.tokens]; the token itself is printed on stderr, once.

    \b
    Examples:
      headway passwd alice
      pass show broker/alice | headway passwd alice >>users.toml
      headway passwd --token prometheus
    """
    if not name.strip() or not name.isprintable():
        raise ConfigError("a user's name consists of printable characters")
    if token:
        secret, digest = new_token()
        typer.echo(f"{toml_key(name)} = \"{digest}\"")
        say(f"the token, which is kept nowhere: {secret}")
        return
    if sys.stdin.isatty():
        password = str(typer.prompt(f"Password for {name}", hide_input=True, confirmation_prompt=True, err=True))
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise ConfigError("the password is empty")
    if len(password.encode()) > PASSWORD_BYTES_MAX:
        raise ConfigError(f"the password is longer than {PASSWORD_BYTES_MAX} bytes")
    typer.echo(f'{toml_key(name)} = "{hash_password(password, scram_able=scram)}"')
