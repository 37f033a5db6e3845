"""The recommendation: the candidate to take, and a config that the broker takes as it is.

Of those that keep to the goal (peak memory and disk, producer stall, how soon the stuck are cut off) the one with the
fewest false verdicts, then with the fewest missed, then the quickest to find, then the cheapest: fewest consumers hit,
fewest records not given, least held. If none keeps to the goal, the one that exceeds it least. Of equals, what ran.
``nothing`` may win: then nobody is missed, or nobody can be found without a false verdict.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from headway import __version__
from headway.core.base import format_count, format_duration, format_size
from headway.core.policy import HTTP_LISTENER
from headway.pipeline.lab.plans.candidates import Candidate
from headway.pipeline.lab.plans.served import with_policies
from headway.pipeline.lab.score import Score
from headway.pipeline.lab.tasks import RecordedRun
from headway.server.config import parse_settings
from headway.store.toml import BadConfig, policy_text, quoted, toml_key, value

NO_LIMIT = 60_000.0
"""The stall, ms, that counts as one multiple of a goal of no stall at all."""


class Recommendation(NamedTuple):
    score: Score
    sentence: str
    """The reason for this one."""


def recommend(scores: Sequence[Score], limits: Mapping[str, float]) -> Recommendation:
    """Returns the candidate to take, and marks it. ``limits``: see ``score.judge``."""
    within = [one for one in scores if one.within_goal]
    if within:
        best = min(within, key=rank)
        sentence = _why(best, [one for one in within if one is not best])
    else:
        best = min(scores, key=lambda one: (_excess(one, limits), rank(one)))
        sentence = "none keeps to the goal; this one exceeds it least"
    best.recommended = True
    return Recommendation(best, sentence)


def rank(one: Score) -> tuple[int, ...]:
    """Returns by what candidates are compared; less is better. Times to find differ if they do by whole seconds."""
    return (
        one.false_verdicts, one.missed, round(one.find_ms / 1000), one.hit, one.records_gone,
        one.memory_peak_bytes + one.disk_peak_bytes,
    )  # fmt: skip


_BETTER = (
    ("the fewest false verdicts", format_count),
    ("the fewest missed", format_count),
    ("the shortest time to find who never catches up", format_duration),
    ("the fewest consumers hit", format_count),
    ("the fewest records not given", format_count),
    ("the least held", format_size),
)
"""The advantages of a candidate over the next best, in the order of ``rank``, and how their figures are written."""


def _why(best: Score, others: Sequence[Score]) -> str:
    """Returns what sets the best apart from the next best."""
    if not others:
        return "it is the only one that keeps to the goal"
    among = f"of the {len(others) + 1} that keep to the goal"
    if best.kind == "nothing" and not best.missed:
        return f"{among} no policy does better than none: nobody is missed"
    following = min(map(rank, others))
    apart = [index for index, (mine, other) in enumerate(zip(rank(best), following, strict=True)) if mine != other]
    if best.kind == "ran":
        if not apart:
            return f"{among} none does better than what ran: leave it as it is"
        among, whose = f"{among}, what ran", ": leave it as it is"
    else:
        among, whose = f"{among}, it", ""
    if not apart:
        return f"{among} comes first, and others are as good"
    what, form = _BETTER[apart[0]]
    equal = ", and no more false verdicts than the next" if apart[0] == 1 and best.false_verdicts else ""
    return f"{among} has {what} ({form(rank(best)[apart[0]])}; the next {form(following[apart[0]])}){equal}{whose}"


def _excess(one: Score, limits: Mapping[str, float]) -> float:
    """Returns by how much it exceeds its limits, in multiples of each; of ``NO_LIMIT`` where a limit is 0."""
    return sum(max(0.0, float(getattr(one, name)) - limit) / (limit or NO_LIMIT) for name, limit in limits.items())


def recommended_toml(
    best: Recommendation, candidate: Candidate, ran: Score, run: RecordedRun, recording: str, made: dt.datetime,
    served: str | None = None,
) -> str:  # fmt: skip
    """Writes a config with the recommended policies and pool. ``run``: the last one recorded; ``recording``: in
    words; ``served``: the text of the configuration that the broker runs with, of which only the policies change, and
    the limits of the pool that the candidate sets. Raises ConfigError where these cannot be told from the rest."""
    if served is not None:
        head = "\n".join(f"# {line}".rstrip() for line in _head(best, ran, recording, made, served=True))
        same = candidate.kind == "ran"
        return f"{head}\n\n{served if same else with_policies(served, candidate)}"
    body = _pool_text(run, candidate) + "\n" + candidate.policy_toml
    topics = "".join(f"[[topic]]\n{_topic(table)}\n" for table in run.topic_tables)
    head = "\n".join(f"# {line}" for line in _head(best, ran, recording, made))
    policies = run.policies_of(candidate)
    listeners = "".join(
        f'[listeners.{toml_key(name)}]\nurl = "mqtt://127.0.0.1:0"  # its address is not in the recording\n\n'
        for name in dict.fromkeys(name for policy in policies for name in policy.listeners) if name != HTTP_LISTENER
    )  # fmt: skip
    text = f"{head}\n\n{listeners}{topics}{body}"
    try:
        parse_settings(text)
    except BadConfig as error:
        # The recorded pool does not fit this machine or the default listener; the policies do.
        text = _without_pool(text, error.lines[0])
        parse_settings(text)
    return text


def _head(
    best: Recommendation, ran: Score, recording: str, made: dt.datetime, *, served: bool = False
) -> list[str]:
    one = best.score
    lines = [
        f"Recommended by `headway lab run` ({__version__}, {made:%Y-%m-%d}) from {recording}:",
        f"{quoted(one.candidate)}: {best.sentence}.",
        "",
        f"It predicts   {_predicted(one)}",
    ]
    if one.kind != "ran":
        lines.append(f"What ran       {_predicted(ran)}")
    if served:
        lines += ["", "The rest is the configuration that was given with --config."]
    else:
        lines += ["", "Whatever is not here is as in the default (headway serve --print-config)."]
    if one.kind == "nothing":
        lines.append("A config without policies has the default one, which only tells who does not read.")
    return [line.rstrip() for line in lines]


def _predicted(one: Score) -> str:
    stall = format_duration(one.producer_stall_ms / 1000)
    found = f"found in {format_duration(one.find_ms / 1000)} (median)" if one.found_any else "nobody found"
    return (
        f"{format_count(one.hit)} of {format_count(one.consumers)} consumers hit, "
        f"{format_count(one.false_positives)} of them wrongly; {format_count(one.false_verdicts)} false verdicts, "
        f"{format_count(one.missed)} missed, {found}; "
        f"{format_count(one.records_gone)} records not given; "
        f"at most {format_size(one.memory_peak_bytes)} in memory, {format_size(one.disk_peak_bytes)} on disk; "
        f"publishers held back for {stall}"
    )


def _pool_text(run: RecordedRun, candidate: Candidate) -> str:
    """Writes the candidate's pool; limits that it leaves out are as recorded."""
    memory, disk, share = run.limits(candidate.pool)
    pool: dict[str, Any] = {"memory": f"{memory}B", "disk": f"{disk}B", "max_client_share": share}
    return policy_text((), pool)


def _topic(table: Mapping[str, Any]) -> str:
    """Leaves out recorded topics: they are no policy's affair, and need a journal, which is not here."""
    lines = [f"{'# ' if key == 'keep' else ''}{key} = {value(item)}\n" for key, item in table.items()]
    return "".join(lines)


def _without_pool(text: str, why: str) -> str:
    """Turns the ``[pool]`` table into comments."""
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        if line.startswith("["):
            inside = line == "[pool]"
            if inside:
                lines.append(f"# Not in force where this was written: {why}")
        lines.append(f"# {line}" if inside and line else line)
    return "\n".join(lines) + "\n"
