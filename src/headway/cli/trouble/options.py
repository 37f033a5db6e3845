"""Options of `headway trouble`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

PASSWORD = "HEADWAY_TROUBLE_PASSWORD"
"""The variable of the environment that has the password."""
EACH = 2
"""So many of each kind, where nobody says how many."""

AddressArgument = Annotated[
    str,
    typer.Argument(
        metavar="ADDRESS", help="mqtt://, mqtts://, ws://, wss://, amqp:// or amqps://HOST:PORT.", show_default=False
    ),
]
ListOption = Annotated[bool, typer.Option("--list", help="Explain every kind of trouble, and end.")]
KindsOption = Annotated[
    str,
    typer.Option(
        "--kinds", metavar="KINDS", show_default=False,
        help=f"Such as stuck=50,flapping.  [default: all, {EACH} of each]",
    ),
]  # fmt: skip
ControlsOption = Annotated[int, typer.Option("--controls", min=1, max=1000, help="Healthy consumers beside it.")]
ForOption = Annotated[str, typer.Option("--for", metavar="TIME", help="For how long there is trouble.")]
CalmOption = Annotated[str, typer.Option("--calm", metavar="TIME", help="For how long there is none, at first.")]
RateOption = Annotated[str, typer.Option("--rate", metavar="N", help="Records a second.")]
SizeOption = Annotated[str, typer.Option("--size", metavar="SIZE", help="Of a record's payload.")]
TopicsOption = Annotated[int, typer.Option("--topics", min=1, max=10_000, help="Topics that they are of.")]
PrefixOption = Annotated[
    str,
    typer.Option(
        "--prefix", metavar="TOPIC", show_default=False,
        help="All topics begin with it.  [default: headway-trouble/RUN]",
    ),
]  # fmt: skip
TopicOption = Annotated[
    str | None, typer.Option("--topic", metavar="FILTER", help="Publish nothing: consume traffic that is there.")
]
QosOption = Annotated[int, typer.Option("--qos", min=0, max=1, help="1: records are confirmed to the publisher.")]
TrickleOption = Annotated[str, typer.Option("--trickle", metavar="RATE", help="What a trickling one reads.")]
WindowOption = Annotated[int, typer.Option("--window", min=1, max=10_000, help="Deliveries without an ack.")]
TolerateOption = Annotated[
    str, typer.Option("--tolerate", metavar="TIME", help="p99 may grow by so much, or to twice: no harm.")
]
UserOption = Annotated[str | None, typer.Option("--user", metavar="NAME", help=f"Its password: ${PASSWORD}.")]
CaFileOption = Annotated[Path | None, typer.Option("--ca", metavar="FILE", help="The CA of a broker with TLS.")]
SeedOption = Annotated[int, typer.Option("--seed", help="Of what is random in the trouble.")]
JsonFileOption = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="All figures, for programs.")]
HtmlFileOption = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="The report as a page.")]
YesOption = Annotated[
    bool, typer.Option("--yes-trouble-this-broker", help="It may be another machine's: I may do that to it.")
]
