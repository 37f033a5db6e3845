"""The password file: a line ``NAME:HASH`` for each user, as mosquitto's ``password_file`` has it. Empty lines, and
lines that begin with #, count for nothing."""

from __future__ import annotations

from pathlib import Path

from headway.core.base import ConfigError
from headway.server.config.auth.hashes import check_hash
from headway.store.toml import BadConfig, read_text

NAME_CHARS_MAX = 100
FILE_BYTES_MAX = 16_000_000
SHOWN_MAX = 10


def read_password_file(path: Path) -> dict[str, str]:
    """Returns the hashes of a file by user. Raises BadConfig with a line for each of the first bad lines; none of them
    shows what may be a password."""
    users: dict[str, str] = {}
    errors: list[str] = []
    more = 0
    for number, line in enumerate(read_text(path, FILE_BYTES_MAX).split("\n"), 1):
        text = line.rstrip("\r")
        if not text.strip() or text.startswith("#"):
            continue
        try:
            name, hashed = _user(text)
            if name in users:
                raise ConfigError(f"{name} has a line already")
            users[name] = hashed
        except ConfigError as error:
            if len(errors) < SHOWN_MAX:
                errors.append(f"{path}:{number}: {error}")
            else:
                more += 1
    if more:
        errors.append(f"{path}: and {more} more bad lines")
    if not users and not errors:  # "no users" would mean that anybody may come in
        errors.append(f"{path}: has no users in it")
    if errors:
        raise BadConfig(errors)
    return users


def _user(line: str) -> tuple[str, str]:
    name, colon, hashed = line.partition(":")
    if not colon:
        raise ConfigError("is not NAME:HASH, as mosquitto_passwd writes it")
    if not name.strip() or len(name) > NAME_CHARS_MAX or not name.isprintable():
        raise ConfigError(f"has no user's name before the colon: up to {NAME_CHARS_MAX} printable characters")
    if not hashed:
        raise ConfigError(f"{name} has no hash")
    try:
        return name, check_hash(hashed)
    except ConfigError as error:
        raise ConfigError(f"the password of {name} {error}{_plain(hashed)}") from None


def _plain(hashed: str) -> str:
    return "" if hashed.startswith("$") else "; mosquitto_passwd -U hashes a whole file"
