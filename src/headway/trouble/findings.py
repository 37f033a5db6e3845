"""The findings of a run, as plain values: what is printed and what programs get are made of the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from headway.trouble.client import Client
from headway.trouble.figures import Delays
from headway.trouble.kinds import KINDS
from headway.trouble.publisher import Publisher, Span
from headway.trouble.run import Outcome
from headway.trouble.verdict import judge

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
