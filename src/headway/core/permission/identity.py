"""An identity: who a client is, as was checked."""

from __future__ import annotations

import msgspec


class Identity(msgspec.Struct, frozen=True):
    """A user, as permissions and limits know it."""

    user: str = ""
    """Empty: the client gave no name that was checked."""
    groups: tuple[str, ...] = ()
    """Groups besides those of the config."""
    elsewhere: bool = False
    """Whether something else than the config vouches for the name, such as a certificate: its user need not be one of
    the config's."""
    until_s: float | None = None
    """The time when it ends (epoch seconds); None: never."""


NOBODY = Identity()
