"""A made-up lake: samples of any number of consumers (heavy-tailed rates, bursts, stalls, flaps), to plan ahead with.

    python -m bench.synthetic --consumers 10000 --minutes 60 --lake synthetic --seed 1
    headway lab run --lake synthetic --candidates candidates.toml --out lab

The same seed makes the same rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bench.synthetic.lake import synthesize
from headway.cli.options import MasterOption, MemoryOption, VerboseOption, plainly
from headway.core.base import format_count, format_duration, format_size
from headway.pipeline.session import open_session, progress


@plainly
def main(
    consumers: Annotated[int, typer.Option("--consumers", min=1, help="How many.")],
    minutes: Annotated[float, typer.Option("--minutes", min=0.1, help="How long a recording.")],
    lake: Annotated[Path, typer.Option("--lake", metavar="DIR", help="A new folder for it.")],
    seed: Annotated[int, typer.Option("--seed", help="The same seed makes the same rows.")] = 1,
    master: MasterOption = "local[*]",
    memory: MemoryOption = "2g",
    verbose: VerboseOption = False,
) -> None:
    with (
        open_session("headway synth", master=master, memory=memory, verbose=verbose) as spark,
        progress(f"making up {consumers:,} consumers", spark),
    ):
        made = synthesize(spark, lake, consumers, minutes, seed)
    typer.echo(
        f"{lake}: {format_count(made.rows)} rows of {format_count(made.consumers)} consumers of "
        f"{format_count(made.topics)} topics in {made.files} files, {format_size(made.bytes)}; "
        f"took {format_duration(made.seconds)}"
    )


if __name__ == "__main__":
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
    app.command(help=(__doc__ or "").replace("\n\n    python", "\n\n\b\n    python"))(main)
    app(prog_name="python -m bench.synthetic")
