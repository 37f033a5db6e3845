"""Pages of `headway top` beside the list: one consumer's details, and the help."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from headway.cli import figures
from headway.cli.why import tell
from headway.console import printable

FIGURES = (
    ("lag", "lag_records", figures.count), ("lag bytes", "lag_bytes", figures.size),
    ("oldest waiting", "lag_age_ms", figures.millis), ("sees, old", "view_age_ms", figures.millis),
    ("holds", "held_bytes", figures.size), ("offered", "offered_rate", figures.rate),
    ("drained", "drain_rate", figures.rate), ("delivered", "delivered_records", figures.count),
    ("blocked", "blocked_ms", figures.millis), ("no credit", "credit_exhausted_ms", figures.millis),
    ("in flight", "in_flight", figures.count), ("last ack", "ack_age_ms", figures.millis),
    ("skipped", "gap_records", lambda counts: figures.count(figures.total(counts))),
    ("publishers held", "producer_stall_ms", figures.millis), ("times slow", "slow_count", figures.count),
    ("patience", "patience_ms", figures.millis),
)  # fmt: skip
VERDICTS_SHOWN = 20

HELP = """\
up, down, PgUp, PgDn, Home, End   choose a consumer
Enter       its details             Esc, q   back
/ or F4     filter as you type: a name, a topic, a state; Enter keeps it
> < or F6   sort by the next or the previous column
L A H D     sort by lag, age, bytes held, drain;  N S: by name, by state
r           reverse the order
p or space  pause, and go on        q        quit

LAG     records that wait for it    HOLDS    bytes kept on its account
AGE     of the oldest of them       DRAIN    what it takes, bytes a second
SEES    how old the records are that it reads now
STATE   ok, behind, slow, conflating, discarding, offline (it reads from disk),
        away (not connected; these stand last)
BLOCKED    its socket takes no bytes
NO CREDIT  records wait, but it has not acknowledged enough
SKIPPED    records it was not given
STALLS     for how long it has held up publishers"""


def help_page() -> Group:
    return Group(Text("headway top: keys and columns", style="bold"), Text(), Text(HELP, no_wrap=True))


def details(consumer: Mapping[str, Any], why: Mapping[str, Any] | None, trouble: str = "") -> Group:
    """``why``: the broker's answer about the client; None: it has not come yet. ``trouble``: why it cannot come."""
    state = str(consumer.get("state", "?"))
    head = Text(printable(consumer.get("client", "?")), style="bold")
    head.append("  ").append(printable(state), style=figures.STYLES.get(state, ""))
    about = [f"{name} {printable(consumer[name])}" for name in ("filter", "protocol", "listener", "policy", "user")
             if consumer.get(name)]  # fmt: skip
    table = Table(box=None, pad_edge=False, show_header=False)
    for justify in ("left", "right") * 2:
        table.add_column(justify=justify, no_wrap=True)
    cells = [(name, form(consumer.get(key))) for name, key, form in FIGURES]
    half = (len(cells) + 1) // 2
    for left, right in zip(cells[:half], [*cells[half:], ("", "")], strict=False):
        table.add_row(Text(left[0], style="dim"), left[1], Text(f"   {right[0]}", style="dim"), right[1])
    parts: list[Any] = [head, Text(" · ".join(about)), Text(), table, Text()]
    if trouble:
        parts.append(Text(printable(trouble), style="bold red"))
    elif why is None:
        parts.append(Text("asking the broker why ...", style="dim"))
    else:
        parts.append(_Told(why))
    return Group(*parts)


class _Told:
    """Draws the words of `headway why`."""

    def __init__(self, why: Mapping[str, Any]) -> None:
        self._why = why

    def __rich_console__(self, console: Console, options: Any) -> Any:
        inner = Console(width=options.max_width, file=None, force_terminal=False)
        with inner.capture() as captured:
            tell(inner, dict(self._why), VERDICTS_SHOWN)
        yield Text(captured.get().rstrip())
