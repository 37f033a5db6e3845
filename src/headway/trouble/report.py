"""The report of a run for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from headway.console import many, printable
from headway.core.base import format_count, format_duration
from headway.trouble.client import Client, Publisher, Span
from headway.trouble.figures import Delays
from headway.trouble.kinds import KINDS
from headway.trouble.run import Outcome
from headway.trouble.wires import WINDOW

# -- verdict -----------------------------------------------------------------------------------------------------------
#
# The verdict on a run: whether the healthy consumers were harmed, in plain words.


HARM_FACTOR = 2.0
"""The controls' p99 may grow to so many times what it was."""
LATE_SHARE = 0.5
"""Where this program's own lateness is this part of what the controls' delay grew by, it may be the reason."""
BUSY_SHARE = 0.9
"""The share of a core from which on this program counts as saturated."""
RATE_SHARE = 0.9
"""A publisher that had less than this part of the rate that it had before was held back."""


class Verdict(NamedTuple):
    harmed: bool | None
    """None: nobody can tell."""
    words: list[str]


def judge(found: dict[str, Any], tolerate_s: float) -> Verdict:
    """``found``: the findings of a run, without the verdict."""
    controls = found["controls"]
    harms: list[str] = []
    unclear: list[str] = []
    if controls["lost"]:
        harms.append(f"healthy consumers lost {controls['lost']:,} records")
    if controls["cut"]:
        harms.append(f"{controls['cut']} of {controls['clients']} healthy consumers were cut: {controls['words']}")
    held = _held_back(found)
    latency = _latency(found, tolerate_s)
    busy = _own_fault(found)
    if held:
        (unclear if busy else harms).append(held)
    if latency is not None and latency.harmed:
        (unclear if busy else harms).extend(latency.words)
    if harms:
        return Verdict(True, [*harms, *unclear, *([busy] if busy else [])])
    if unclear:
        return Verdict(None, [*unclear, f"nobody can tell whether that is the broker's doing: {busy}"])
    if latency is None:
        fine = "healthy consumers were not cut, and that is all that can be told: the traffic is not this run's own"
        return Verdict(False, [fine if found["listens"] else "healthy consumers got nothing to measure a delay by"])
    return Verdict(False, [*latency.words, *([f"with care, as {busy}"] if busy else [])])


def _latency(found: dict[str, Any], tolerate_s: float) -> Verdict | None:
    before, beside = (found["controls"][when]["p99_ms"] for when in ("before", "beside"))
    if before is None or beside is None:
        return None
    harmed = beside > max(HARM_FACTOR * before, before + tolerate_s * 1000)
    figures = f"p99 {millis(before)} before, {millis(beside)} beside the trouble"
    return Verdict(harmed, [f"healthy consumers noticed{'' if harmed else ' nothing that matters'}: {figures}"])


def _held_back(found: dict[str, Any]) -> str:
    told = found["publisher"]
    if told is None or not told["before"]["rate"]:
        return ""
    before, beside = told["before"]["rate"], told["beside"]["rate"]
    if beside >= RATE_SHARE * before:
        return ""
    return (f"the publisher was held back: {before:,.0f} records a second before, {beside:,.0f} beside the trouble, "
            f"blocked for {told['beside']['blocked_s']:.1f} s")  # fmt: skip


def _own_fault(found: dict[str, Any]) -> str:
    """Says how this program, or its machine, is itself the slow one; empty: it is not."""
    machine, controls = found["machine"], found["controls"]
    if machine["cpu_share"] > BUSY_SHARE:
        return f"this program used {machine['cpu_share']:.0%} of a core; ask for less with --rate or --kinds"
    late = machine["late_beside_p99_ms"]
    before, beside = (controls[when]["p99_ms"] for when in ("before", "beside"))
    if late is None or before is None or beside is None or late < LATE_SHARE * max(1.0, beside - before):
        return ""
    return f"this program itself woke up late, p99 {millis(late)}: its machine is busy"


def millis(value: float) -> str:
    """``2.1 ms``, ``1,240 ms``."""
    return f"{value:,.1f} ms" if value < 100 else f"{value:,.0f} ms"


# -- report ------------------------------------------------------------------------------------------------------------


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
        console.print(Text(_publisher_line(found["publisher"])))
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


def _publisher_line(told: dict[str, Any]) -> str:
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


# -- findings ----------------------------------------------------------------------------------------------------------
#
# The findings of a run, as plain values: what is printed and what programs get are made of the same.


WORDS_SHOWN = 3


def findings(outcome: Outcome, address: str) -> dict[str, Any]:
    """``address``: of the broker, without a login."""
    stage, plan = outcome.stage, outcome.stage.plan
    protocol = stage.place.protocol
    version = {4: " 3.1.1", 5: " 5"}[stage.mqtt_version] if protocol == "mqtt" else " 0-9-1"
    found: dict[str, Any] = {
        "broker": {"address": address, "protocol": protocol + version, "product": stage.product},
        "run": plan.name, "began_s": outcome.began_s, "calm_s": round(outcome.calm_s, 1),
        "trouble_s": round(outcome.trouble_s, 1), "interrupted": outcome.interrupted,
        "prefix": plan.prefix, "listens": plan.listen, "seed": plan.seed,
        "size_bytes": plan.size_bytes, "qos": plan.qos,
        "machine": {
            "late_before_p99_ms": outcome.lateness.before.quantile_ms(0.99),
            "late_beside_p99_ms": outcome.lateness.beside.quantile_ms(0.99),
            "cpu_share": round(outcome.lateness.cpu_share, 3),
        },
        "publisher": None if outcome.publisher is None else _publisher(outcome.publisher, plan.rate),
        "controls": _controls(outcome),
        "kinds": [_kind(name, [one for one in outcome.troubled if one.kind == name]) for name in plan.kinds],
        "decided": None,
    }  # fmt: skip
    verdict = judge(found, plan.tolerate_s)
    found["verdict"] = {"harmed": verdict.harmed, "words": verdict.words}
    return found


def _publisher(publisher: Publisher, rate: float) -> dict[str, Any]:
    dialogue = publisher.client.dialogue
    return {
        "asked_rate": rate, "before": _span(publisher.before), "beside": _span(publisher.beside),
        "sent": sum(publisher.sent), "refused": dialogue.refused, "refusal": dialogue.refusal,
        "unconfirmed": dialogue.unconfirmed, "window": dialogue.window,
        "held_by": sorted(publisher.held_by), "ends": [one.words for one in publisher.client.ends],
    }  # fmt: skip


def _span(span: Span) -> dict[str, float]:
    rate = span.sent / span.seconds if span.seconds else 0.0
    return {"rate": round(rate, 1), "records": span.sent, "blocked_s": round(span.blocked_s, 2)}


def _controls(outcome: Outcome) -> dict[str, Any]:
    controls = outcome.controls
    refused = 0 if outcome.publisher is None else outcome.publisher.client.dialogue.refused
    before, beside = Delays(), Delays()
    for client in controls:
        before.add_all(client.tally.before)
        beside.add_all(client.tally.beside)
    foreign_before = sum(one.tally.foreign_before for one in controls)
    foreign = sum(one.tally.foreign for one in controls)
    return {
        "clients": len(controls), "cut": sum(bool(one.ends) for one in controls), "words": _words(controls),
        "records": sum(one.tally.records for one in controls),
        "lost": sum(max(0, one.tally.lost - refused) for one in controls),
        "repeated": sum(one.tally.repeated for one in controls),
        "before": _delays(before, foreign_before, outcome.calm_s),
        "beside": _delays(beside, foreign - foreign_before, outcome.trouble_s),
    }  # fmt: skip


def _delays(delays: Delays, foreign: int, seconds: float) -> dict[str, Any]:
    return {
        "p50_ms": delays.quantile_ms(0.5), "p99_ms": delays.quantile_ms(0.99), "worst_ms": delays.quantile_ms(1.0),
        "records": delays.count + foreign, "foreign_rate": round(foreign / seconds, 1) if seconds else 0.0,
    }  # fmt: skip


def _kind(name: str, clients: Sequence[Client]) -> dict[str, Any]:
    ages = sorted(one.age_s for one in clients if one.age_s is not None)
    afters = sorted(end.after_s for one in clients for end in one.ends if end.after_s is not None)
    return {
        "kind": name, "sentence": KINDS[name].sentence, "clients": len(clients),
        "connections": sum(one.connections for one in clients),
        "kept": sum(not one.ends and not one.refusals and one.connections > 0 for one in clients),
        "cut": sum(bool(one.ends) for one in clients),
        "cut_after_s": [round(afters[0], 1), round(afters[-1], 1)] if afters else None,
        "cut_noticed_late": sum(end.after_s is None for one in clients for end in one.ends),
        "refused": sum(len(one.refusals) for one in clients), "words": _words(clients),
        "records": sum(one.seen for one in clients), "lost": sum(one.tally.lost for one in clients),
        "read_on_records": sum(one.tally.records - one.seen for one in clients),
        "age_s": round(ages[-1], 1) if ages else None, "saw_nothing": sum(one.age_s is None for one in clients),
        "notes": sorted({one.note for one in clients if one.note} | _beyond(clients)),
        "names": [one.name for one in clients],
    }  # fmt: skip


def _beyond(clients: Sequence[Client]) -> set[str]:
    """Says whether the broker sent more than the clients permit, where the protocol lets them."""
    most = max((one.unacknowledged_most for one in clients), default=0)
    stage = clients[0].stage if clients else None
    if stage is None or stage.mqtt_version == 4 or most <= stage.plan.window:
        return set()
    return {f"the broker had {most:,} deliveries unacknowledged, where {stage.plan.window:,} were permitted"}


def _words(clients: Sequence[Client]) -> str:
    """Returns what the broker said at the ends, the most frequent first."""
    said = Counter(words for one in clients for words in [*(end.words for end in one.ends), *one.refusals])
    shown = [f"{words} ({count} times)" if count > 1 else words for words, count in said.most_common(WORDS_SHOWN)]
    more = len(said) - len(shown)
    return "; ".join([*shown, *([f"and {more} others"] if more > 0 else [])])
