"""`headway trouble`: slow consumers made to order beside healthy ones, against any broker, and what became of them."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from headway.cli.admin import AdminClient
from headway.cli.options import MISTAKE, AdminOption, plainly, say
from headway.cli.trouble import options
from headway.console import many, printable
from headway.core.base import (
    ConfigError,
    Reason,
    format_count,
    parse_count,
    parse_duration,
    parse_rate,
    parse_size,
    unknown,
)
from headway.store.history import EntryKind, HistoryEntry, decode_entry
from headway.trouble.client import Stage
from headway.trouble.figures import STAMP_BYTES
from headway.trouble.kinds import KINDS
from headway.trouble.plan import Place, Plan, is_loopback, read_place
from headway.trouble.report import findings, show
from headway.trouble.run import Run

# -- decided -----------------------------------------------------------------------------------------------------------
#
# Headway's own decisions about the clients of a run, where the broker is Headway.


DECISIONS_MAX = 10_000
CLIENTS_OWN = frozenset({Reason.NORMAL, Reason.CLIENT_GONE})
"""Reasons of ends that nobody decided but the client."""


def decided(url: str | None, name: str, since_s: float, *, local: bool) -> list[dict[str, Any]] | None:
    """Asks the broker what it decided about the run's clients; None: it is not Headway, as far as can be known."""
    if url is None and not local:
        return None
    query = {"client": f"{name}-*", "since": f"{since_s - 1:.3f}", "kind": "all", "limit": str(DECISIONS_MAX)}
    try:
        _, lines = AdminClient(url).verdicts(query)
    except ConfigError as error:
        if url is not None:
            say(str(error))
        return None
    entries = [entry for line in reversed(lines) if (entry := decode_entry(line)) is not None]
    if not entries and url is None:
        return None  # another broker has this address
    told = [one for one in entries if one.fires or (one.kind is EntryKind.END and one.reason not in CLIENTS_OWN)]
    counts = Counter(_deed(one, name) for one in told)
    first = {_deed(one, name): one for one in reversed(told)}
    return [{"kind": deed[0], "action": deed[1], "cause": deed[2], "count": count,
             "text": first[deed].text or deed[1], "after_s": round(first[deed].wall_s - since_s, 1)}
            for deed, count in counts.most_common()]  # fmt: skip


def _deed(entry: HistoryEntry, name: str) -> tuple[str, str, str]:
    kind = entry.client.removeprefix(f"{name}-").rpartition("-")[0]
    what = entry.action.replace("_", " ") if entry.kind is EntryKind.VERDICT else f"ended: {entry.reason}"
    return kind, what + (" (dry run)" if entry.enforced is False else ""), str(entry.cause or "")


# -- command -----------------------------------------------------------------------------------------------------------


CLIENTS_MAX = 5_000
HARMED = 1


@plainly
def trouble(
    address: options.AddressArgument = "",
    list_kinds: options.ListOption = False,
    kinds: options.KindsOption = "",
    controls: options.ControlsOption = 5,
    duration: options.ForOption = "60s",
    calm: options.CalmOption = "10s",
    rate: options.RateOption = "500",
    size: options.SizeOption = "1kB",
    topics: options.TopicsOption = 4,
    prefix: options.PrefixOption = "",
    topic: options.TopicOption = None,
    qos: options.QosOption = 1,
    trickle: options.TrickleOption = "2kB/s",
    window: options.WindowOption = 20,
    tolerate: options.TolerateOption = "10ms",
    user: options.UserOption = None,
    ca: options.CaFileOption = None,
    seed: options.SeedOption = 1,
    admin: AdminOption = None,
    json_file: options.JsonFileOption = None,
    html_file: options.HtmlFileOption = None,
    yes: options.YesOption = False,
) -> None:
    """Make a broker's slow consumers to order, and see what it does with them and what the healthy ones notice.

    Any broker will do. All topics and queues are the run's own, unless --topic or --prefix says otherwise; the run
    leaves nothing behind. Ctrl-C ends it early, with the report.

    \b
    Examples:
      headway trouble --list
      headway trouble mqtt://127.0.0.1:1883
      headway trouble mqtt://127.0.0.1:1883 --kinds stuck=100 --rate 2000 --for 2min --json stuck.json
      headway trouble amqp://guest:guest@127.0.0.1:5672/vhost --kinds no-acks,trickling=5
      headway trouble mqtts://broker.example:8883?ca=ca.pem --user alice --yes-trouble-this-broker

    Exit codes: 0 the healthy ones noticed nothing that matters, 1 they were harmed, 2 something to put right, also
    when this machine was too busy to tell.
    """
    if list_kinds:
        explain(Console())
        return
    if not address:
        raise ConfigError("which broker? such as mqtt://127.0.0.1:1883; --list explains the kinds of trouble")
    place = read_place(address, user, os.environ.get(options.PASSWORD), str(ca) if ca else None)
    if not yes and not is_loopback(place):
        raise ConfigError(f"{place.host} is not this machine, and this is trouble for whoever uses that broker; "
                          "if you may do that to it: --yes-trouble-this-broker")  # fmt: skip
    plan = _plan(place, kinds=kinds, controls=controls, duration=duration, calm=calm, rate=rate, size=size,
                 topics=topics, prefix=prefix, topic=topic, qos=qos, trickle=trickle, window=window,
                 tolerate=tolerate, seed=seed)  # fmt: skip
    found = _perform(place, plan, f"{place.protocol}://{place}")
    found["decided"] = decided(admin, plan.name, found["began_s"], local=is_loopback(place))
    _tell(found, json_file, html_file)
    if found["verdict"]["harmed"] is not False:
        raise typer.Exit(HARMED if found["verdict"]["harmed"] else MISTAKE)


def _tell(found: dict[str, Any], json_file: Path | None, html_file: Path | None) -> None:
    console = Console(record=html_file is not None)
    show(console, found)
    if json_file is not None:
        json_file.write_text(json.dumps(found, indent=1))
    if html_file is not None:
        console.save_html(str(html_file))


def explain(console: Console) -> None:
    """Prints every kind and its sentence."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for one in KINDS.values():
        more = "; needs --qos 1" if one.needs_acks else "; not with --topic" if one.publishes else ""
        table.add_row(one.name, one.sentence + more)
    console.print(table)


# -- the plan ---------------------------------------------------------------------------------------------------------


def _plan(place: Place, **given: Any) -> Plan:
    """Returns the plan that the options ask for. Raises ConfigError."""
    qos, listen = given["qos"], given["topic"]
    name = f"trb-{secrets.token_hex(2)}"
    size_bytes = _read("--size", parse_size, given["size"])
    if not STAMP_BYTES <= size_bytes <= 1_000_000:
        raise ConfigError(f"--size {given['size']}: from {STAMP_BYTES} B to 1 MB")
    rate = _read("--rate", parse_count, given["rate"])
    if not 1 <= rate <= 100_000:
        raise ConfigError(f"--rate {given['rate']}: from 1 to 100,000 records a second")
    prefix = given["prefix"] or f"headway-trouble/{name}"
    if any(char in prefix for char in "#+*") or prefix.startswith(("/", "$")) or prefix.endswith("/"):
        raise ConfigError(f"--prefix {prefix}: the beginning of a topic, without wildcards")
    acks = qos == 1 or place.protocol != "mqtt"
    chosen = _kinds(given["kinds"], acks=acks, listens=listen is not None)
    return Plan(
        chosen, name, prefix, controls=given["controls"], rate=float(rate), size_bytes=size_bytes,
        topics=given["topics"], listen=listen, calm_s=_read("--calm", parse_duration, given["calm"]),
        trouble_s=_read("--for", parse_duration, given["duration"]), qos=qos,
        trickle_bytes=_read("--trickle", parse_rate, given["trickle"]), window=given["window"],
        tolerate_s=_read("--tolerate", parse_duration, given["tolerate"]), seed=given["seed"],
    )  # fmt: skip


def _read(option: str, parse: Any, text: str) -> Any:
    try:
        return parse(text)
    except ConfigError as error:
        raise ConfigError(f"{option}: {error}") from None


def _kinds(text: str, *, acks: bool, listens: bool) -> dict[str, int]:
    """Returns how many of each kind; all that are possible where nobody chooses. Raises ConfigError."""
    if not text:
        return {one.name: options.EACH for one in KINDS.values()
                if (acks or not one.needs_acks) and not (listens and one.publishes)}  # fmt: skip
    chosen: dict[str, int] = {}
    for word in text.split(","):
        name, _, count = word.strip().partition("=")
        if name not in KINDS:
            raise ConfigError(f"--kinds: {unknown('kind', name, list(KINDS))}")
        if KINDS[name].needs_acks and not acks:
            raise ConfigError(f"--kinds {name}: needs --qos 1, or there is nothing to acknowledge")
        if KINDS[name].publishes and listens:
            raise ConfigError(f"--kinds {name}: it publishes, and with --topic nothing is published")
        chosen[name] = _read(f"--kinds {name}", parse_count, count or str(options.EACH))
    if not 0 < sum(chosen.values()) <= CLIENTS_MAX:
        raise ConfigError(f"--kinds: from 1 to {format_count(CLIENTS_MAX)} clients in all")
    return chosen


# -- the run ----------------------------------------------------------------------------------------------------------


def _perform(place: Place, plan: Plan, address: str) -> dict[str, Any]:
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), TextColumn("{task.fields[figures]}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("connecting", total=1.0, figures="")

        def tell(run: Run) -> None:
            progress.update(task, description=run.phase, completed=run.share, figures=printable(_figures(run)))

        async def perform() -> dict[str, Any]:
            stop, loop = asyncio.Event(), asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, stop.set)
            stage = Stage(place, plan, secrets.randbits(64))
            return findings(await Run(stage, stop, tell).perform(), address)

        return asyncio.run(perform())


def _figures(run: Run) -> str:
    got = sum(one.tally.records for one in run.controls)
    sent = f"{format_count(sum(run.publisher.sent))} published, " if run.publisher is not None else ""
    gone = sum(bool(one.ends) for one in run.troubled)
    return f"{sent}{format_count(got)} received by the healthy, {gone} of {many(len(run.troubled), 'client')} cut"
