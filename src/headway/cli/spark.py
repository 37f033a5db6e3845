"""Options shared by all commands that start Spark."""

from __future__ import annotations

from typing import Annotated

import typer

MasterOption = Annotated[str, typer.Option("--master", metavar="URL", help="local[N], or spark://HOST:PORT.")]
MemoryOption = Annotated[str, typer.Option("--memory", metavar="SIZE", help="For Spark's driver, such as 2g.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", help="Let Spark say all it has to say.")]
AdminOption = Annotated[
    str | None, typer.Option("--admin", metavar="URL", help="The broker's admin API.  [default: as the config says]")
]
