"""Agreement: what the lab says of a recording, beside what the broker said at the time.

The broker judges by its policies and by trials, and records samples and verdicts. The lab gets the same policies and
the samples. What counts is the first verdict of each policy about each consumer (a client's subscriptions to one
filter): from both or from neither, by the same rule with the same action, and when.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from bench.behaviours.broker import IN_FORCE
from headway.core.policy import parse_trials
from headway.pipeline.lab.job import read_replay_input, read_samples, replay_samples
from headway.pipeline.lab.plans.candidates import Candidate
from headway.pipeline.lake import read_table

NEAR_S = 2.0
TASKS = 8
_Consumer = tuple[str, str, str, str]
"""Policy, run, client, filter."""


class Word(NamedTuple):
    """The first verdict of a policy about a consumer. ``time_s`` counts from the beginning of the recording."""

    rule: int
    action: str
    time_s: float


class Difference(NamedTuple):
    """A consumer about whom the two do not say the same, or say it at different times."""

    policy: str
    client: str
    filter: str
    broker: Word | None
    lab: Word | None


class Agreement(NamedTuple):
    """One policy, and how many consumers the broker and the lab say the same of."""

    policy: str
    consumers: int
    neither: int
    both: int
    near: int
    """Verdicts of both that are not further apart than ``NEAR_S``."""
    differences: list[Difference]

    @property
    def judged(self) -> int:
        """Consumers of whom at least one of them says something."""
        return self.consumers - self.neither


def compare(spark: SparkSession, lake: Path) -> list[Agreement]:
    """Returns for each policy of a recording (those in force count as one) how far the lab agrees with the broker."""
    found = read_replay_input(spark, lake)
    last = read_table(spark, lake, "configs").orderBy("time").toArrow().to_pylist()[-1]
    trials = parse_trials(json.loads(last["config"]).get("trial", []))
    candidates = [Candidate(IN_FORCE, "ran"), *(Candidate(trial.name, "grid", (trial,)) for trial in trials)]
    samples = read_samples(spark, lake).where(~F.col("filter").startswith("$SYS/"))
    consumers = [
        (row["run"], row["client"], row["filter"])
        for row in samples.select("run", "client", "filter").distinct().toArrow().to_pylist()
    ]
    passages = replay_samples(samples, candidates, found.runs, 1, TASKS).drop("buckets").toArrow().to_pylist()
    lab = _first(
        ((candidates[row["candidate"]].name, row["run"], row["client"], row["filter"]),
         Word(row["found_rule"], row["found_action"], row["found_s"]))
        for row in passages if row["found_s"] is not None
    )  # fmt: skip
    broker = _first(
        ((IN_FORCE if table == "verdicts" else row["policy"], row["run"], row["client"], row["filter"]),
         Word(row["rule"], row["action"], (row["us"] - found.runs[row["run"]].origin_us) / 1e6))
        for table in ("verdicts", "trial_verdicts") for row in _fired(spark, lake, table) if row["run"] in found.runs
    )  # fmt: skip
    return [agreement(candidate.name, consumers, broker, lab) for candidate in candidates]


def _fired(spark: SparkSession, lake: Path, table: str) -> list[dict[str, Any]]:
    rows = read_table(spark, lake, table).where((F.col("kind") == "fire") & (F.col("policy") != ""))
    columns = rows.select("run", "client", "filter", "policy", "rule", "action", F.unix_micros("time").alias("us"))
    found: list[dict[str, Any]] = columns.toArrow().to_pylist()
    return found


def _first(words: Iterable[tuple[_Consumer, Word]]) -> dict[_Consumer, Word]:
    found: dict[_Consumer, Word] = {}
    for consumer, word in words:
        if consumer not in found or word.time_s < found[consumer].time_s:
            found[consumer] = word
    return found


def agreement(
    policy: str, consumers: Iterable[tuple[str, str, str]], broker: dict[_Consumer, Word], lab: dict[_Consumer, Word]
) -> Agreement:
    """Returns how far the two agree about one policy. ``consumers``: run, client, filter."""
    counts: Counter[str] = Counter()
    differences = []
    for run, client, filter in sorted(consumers):
        key = policy, run, client, filter
        said, foretold = broker.get(key), lab.get(key)
        same = said is not None and foretold is not None and said[:2] == foretold[:2]
        near = said is not None and foretold is not None and abs(said.time_s - foretold.time_s) <= NEAR_S
        counts.update(
            consumers=1, neither=said is None and foretold is None, both=same, near=same and near,
        )
        if said != foretold and not (same and near):
            differences.append(Difference(policy, client, filter, said, foretold))
    return Agreement(policy, counts["consumers"], counts["neither"], counts["both"], counts["near"], differences)


def summed(found: Iterable[Agreement]) -> dict[str, Agreement]:
    """Returns one agreement for each policy, over several recordings."""
    sums: dict[str, Agreement] = {}
    for one in found:
        known = sums.get(one.policy)
        sums[one.policy] = one if known is None else Agreement(
            one.policy, known.consumers + one.consumers, known.neither + one.neither, known.both + one.both,
            known.near + one.near, known.differences + one.differences,
        )  # fmt: skip
    return sums
