"""`headway demo` where there is none: an installation has no demo, and says where it is."""

from __future__ import annotations

from headway.cli.errors import plainly
from headway.core.base import ConfigError


@plainly
def demo() -> None:
    """The demo is in a checkout of Headway: `make demo` there."""
    raise ConfigError("the demo is not installed with headway: run make demo in a checkout")
