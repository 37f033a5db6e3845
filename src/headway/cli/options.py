"""Options that several commands have: those that ask a running broker, and those that start Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

AdminOption = Annotated[
    str | None,
    typer.Option(
        "--admin", metavar="URL", envvar="HEADWAY_ADMIN", show_envvar=False,
        help="The broker's admin API.  [default: $HEADWAY_ADMIN or http://127.0.0.1:9883]",
    ),
]  # fmt: skip
CaOption = Annotated[
    Path | None,
    typer.Option("--ca", metavar="FILE", help="The CA of a broker with TLS (https://...).  [default: $HEADWAY_CA]"),
]
ConfiguredAdminOption = Annotated[
    str | None, typer.Option("--admin", metavar="URL", help="The broker's admin API.  [default: as the config says]")
]

MasterOption = Annotated[str, typer.Option("--master", metavar="URL", help="local[N], or spark://HOST:PORT.")]
MemoryOption = Annotated[str, typer.Option("--memory", metavar="SIZE", help="For Spark's driver, such as 2g.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", help="Let Spark say all it has to say.")]
JsonOption = Annotated[bool, typer.Option("--json", help="As JSON, for programs.")]
