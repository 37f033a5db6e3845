"""The report of a run for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from headway.console import many, printable
from headway.core.base import format_count, format_duration
from headway.trouble.verdict import millis
from headway.trouble.wires import WINDOW

STYLES = {True: "bold red", False: "bold green", None: "bold yellow"}


def show(console: Console, found: Mapping[str, Any]) -> None:
    """Prints the findings."""
    broker = found["broker"]
    product = f", {broker['product']}" if broker["product"] else ""
    console.print(Text(printable(f"{broker['address']} ({broker['protocol']}{product})"), style="bold"))
    ended = "; it was ended early" if found["interrupted"] else ""
    calm, beside = format_duration(found["calm_s"]), format_duration(found["trouble_s"])
    console.print(f"{calm} of calm, then {beside} beside the trouble{ended}\n", highlight=False)
    console.print(_kinds(found["kinds"]))
    _said(console, found)
    console.print()
    console.print(_healthy(found))
    if found["publisher"] is not None:
        console.print(Text(_publisher(found["publisher"])))
    else:
        console.print(Text("The traffic is not this run's own: its delays and losses are not known."))
    machine = found["machine"]
    late = machine["late_beside_p99_ms"]
    console.print(Text(f"This program: {machine['cpu_share']:.0%} of a core"
                       + (f", woke up late by {millis(late)} at p99" if late is not None else "")))  # fmt: skip
    _decided(console, found["decided"])
    console.print()
    verdict = found["verdict"]
    for words in verdict["words"]:
        console.print(Text(printable(f"{words[0].upper()}{words[1:]}."), style=STYLES[verdict["harmed"]]))


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for at, name in enumerate(columns):
        table.add_column(name, justify="right" if at and name != "BROKER" else "left", overflow="fold")
    return table


def _kinds(kinds: list[dict[str, Any]]) -> Table:
    table = _table("TROUBLE", "CLIENTS", "BROKER", "RECORDS", "LOST", "AGE")
    for one in kinds:
        age = "saw none" if one["age_s"] is None else format_duration(one["age_s"])
        table.add_row(one["kind"], format_count(one["clients"]), _treatment(one), format_count(one["records"]),
                      format_count(one["lost"]), age)  # fmt: skip
    return table


def _treatment(one: dict[str, Any]) -> str:
    parts = []
    if one["kept"]:
        parts.append("kept" if one["kept"] == one["clients"] else f"kept {one['kept']}")
    if one["cut"]:
        parts.append(f"cut {one['cut']}{_after(one)}")
    if one["refused"]:
        parts.append(f"refused {many(one['refused'], 'connection')}")
    if one["connections"] > one["clients"]:
        parts.append(f"let in {format_count(one['connections'])} times")
    return ", ".join(parts) or "not let in"


def _after(one: dict[str, Any]) -> str:
    if one["cut_after_s"] is None:
        return " (noticed when it read on)"
    first, last = one["cut_after_s"]
    return f" after {format_duration(first)}" if first == last else f" after {first:g} to {format_duration(last)}"


def _said(console: Console, found: Mapping[str, Any]) -> None:
    for one in found["kinds"]:
        if one["words"]:
            console.print(Text("  ").append(f"{one['kind']}: ", style="bold").append(printable(one["words"])))
        for note in one["notes"]:
            console.print(Text(f"  {one['kind']}: {note}"))


def _healthy(found: Mapping[str, Any]) -> Table:
    controls = found["controls"]
    table = _table("HEALTHY", "RECORDS", "P50", "P99", "WORST", "LOST", "CUT")
    for when, words in (("before", f"{controls['clients']} before the trouble"), ("beside", "beside it")):
        part = controls[when]
        figures = ["·" if part[name] is None else millis(part[name]) for name in ("p50_ms", "p99_ms", "worst_ms")]
        ends = [format_count(controls["lost"]), format_count(controls["cut"])] if when == "beside" else ["", ""]
        table.add_row(words, format_count(part["records"]), *figures, *ends)
    return table


def _publisher(told: dict[str, Any]) -> str:
    before, beside = told["before"], told["beside"]
    line = (f"Publisher: {told['asked_rate']:,.0f} records/s asked, {before['rate']:,.0f} had before, "
            f"{beside['rate']:,.0f} beside; blocked {before['blocked_s']:.1f} s and {beside['blocked_s']:.1f} s; "
            f"{many(told['refused'], 'record')} refused")  # fmt: skip
    line += f" ({told['refusal']})" if told["refusal"] else ""
    line += f"; {format_count(told['window'])} unconfirmed permitted" if told["window"] < WINDOW else ""
    line += f", {format_count(told['unconfirmed'])} never confirmed" if told["unconfirmed"] else ""
    line += f"; asked to wait: {'; '.join(told['held_by'])}" if told["held_by"] else ""
    line += f"; cut: {'; '.join(told['ends'])}" if told["ends"] else ""
    return printable(line)


def _decided(console: Console, decided: list[dict[str, Any]] | None) -> None:
    if decided is None:
        return
    console.print(Text(f"\nHeadway's own decisions: {many(len(decided), 'entry')}", style="bold"))
    for one in decided:
        console.print(Text("  " + printable(f"{one['count']} x {one['kind']}: {one['text']}")))
