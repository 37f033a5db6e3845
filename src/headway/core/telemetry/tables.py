"""The tables of the telemetry lake: their columns, what each column holds, and the version of the schema.

The broker's writer, the pipeline's reader and the tables in docs/LAKE.md are all made from these lists.

Rules:
- Counters are cumulative since the subscription, the lane or the broker began. So a lost file only makes an interval
  longer, and a file that is read twice changes nothing.
- The ``key`` of a table identifies its rows: two rows with the same key are the same row.
- A column is never renamed and never changes its meaning. New columns are added at the end. A change that would break
  readers raises ``VERSION``; readers refuse files that are newer than themselves.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

VERSION = 1

Kind = Literal["time", "text", "int", "float", "flag"]
"""``time``: microseconds since 1970 (UTC). ``int``: 64 bits. ``text``: few distinct values, written as a dictionary."""


class Column(NamedTuple):
    name: str
    kind: Kind
    about: str


class LakeTable(NamedTuple):
    name: str
    about: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)


_RUN = Column("run", "text", "one start of one broker, unique for ever")
_BROKER = Column("broker", "text", "the broker's name ([server] name)")
_TIME = Column("time", "time", "when it was observed, by the broker's clock")
_SEQ = Column("seq", "int", "number of the row among those of the same thing, ascending")

CONSUMER_SAMPLES = LakeTable(
    "consumer_samples",
    "one row per subscription and second while it lags, coarser otherwise; one more when it ends",
    ("run", "subscription", "seq"),
    (
        _RUN, _BROKER, _TIME,
        Column("subscription", "int", "the subscription's number, unique within the run"),
        _SEQ,
        Column("client", "text", "the client's name (MQTT client id)"),
        Column("filter", "text", "the topic filter"),
        Column("lane", "text", "the lane it reads: who shares it shares what is held"),
        Column("listener", "text", "where it came in"),
        Column("protocol", "text", "what it speaks"),
        Column("durable", "flag", "its session outlives its connection"),
        Column("policy", "text", "the policy that governs it; none where none does"),
        Column("policy_asked", "text", "the policy it asked for by name; empty if it did not"),
        Column("connected", "flag", "its client is there"),
        Column("state", "text", "ok, behind, slow, offline, conflating, discarding, away"),
        Column("ended", "text", "in its last row, the reason why it is over; else empty"),
        Column("slow", "flag", "marked slow now"),
        Column("offered_records", "int", "records meant for it since it began"),
        Column("offered_bytes", "int", "and their bytes"),
        Column("drained_records", "int", "records it has taken since it began"),
        Column("drained_bytes", "int", "and their bytes"),
        Column("skipped_records", "int", "records left out for it since it began (offered - drained - skipped = lag)"),
        Column("skipped_bytes", "int", "and their bytes"),
        Column("lag_records", "int", "records that wait for it now"),
        Column("lag_bytes", "int", "and their bytes: what a buffer of its own would hold"),
        Column("lag_age_ms", "float", "how long the oldest of them has waited"),
        Column("drain_rate", "float", "bytes a second it takes, over the meter's window"),
        Column("offered_rate", "float", "bytes a second offered to it, over the meter's window"),
        Column("offered_burst", "float", "that, as a multiple of the long run"),
        Column("blocked_ms", "float", "for how long its socket has taken no bytes while records wait; 0: it does"),
        Column("credit_exhausted_ms", "float", "for how long its window has been full while records wait"),
        Column("ack_age_ms", "float", "how long ago the oldest record in flight was sent, beyond its patience"),
        Column("in_flight", "int", "records sent and not acknowledged"),
        Column("prefetch", "int", "its window in records; 0: it has none"),
        Column("slow_count", "int", "how often it was marked slow since it began"),
        Column("pool_share", "float", "what it holds up, as a share of the pool's memory"),
        Column("slow_fraction", "float", "share of slow ones among the consumers of its filter"),
        Column("held_bytes", "int", "its share of what is really held; all consumers' add up"),
        Column("producer_stall_ms", "float", "for how long it has held publishers back since it began"),
        Column("usual_pause_ms", "float", "how long its client usually stands still between two steps; 0: not known"),
        Column("drain_share", "float", "what it took of what was offered over the last half minute of lag"),
        Column("most_lag_bytes", "int", "the most bytes that waited at a look since the row before"),
        Column("most_lag_ago_ms", "float", "how long ago that was"),
        Column("least_lag_bytes", "int", "the fewest bytes that waited at a look since the row before"),
        Column("least_lag_ago_ms", "float", "how long ago that was"),
        Column("excused_ms", "float", "for how much longer it may take nothing, at jobs that it has patience for"),
        Column("topics", "text", "of a queue: the filters by which its policy is chosen, one a line; the first 100"),
        Column("conflates", "flag", "it is given the latest record per key only, by its own wish or its topic's"),
        Column("unacknowledged_bytes", "int", "bytes of those drained that its host had not acknowledged yet"),
        Column("lump_bytes", "float", "so many of them it may have read all the same"),
        Column("patience_ms", "float", "for how long it asked to be waited for at a job; 0: it did not"),
        Column("unacked_ms", "float", "how long ago the oldest record in flight was sent"),
        Column("window_full_ms", "float", "for how long its window has been full; 0: it has room"),
        Column("keyed", "flag", "rules with `keyed` are for it: the latest record per key of its topics is kept"),
        Column("unread_ms", "float", "for how long its client has read nothing while records wait; 0: it reads"),
        Column("unread_pause_ms", "float", "how long its client usually reads nothing; 0: not known"),
        Column("unacknowledged_ms", "float", "how long it acknowledges nothing of all it may hold, or more than usual"),
        Column("ack_pause_ms", "float", "how long it usually acknowledges nothing of what it holds; 0: not known"),
    ),
)  # fmt: skip

VERDICTS = LakeTable(
    "verdicts",
    "one row per verdict",
    ("run", "number"),
    (
        _RUN, _BROKER, _TIME,
        Column("number", "int", "the verdict's number, ascending within the run"),
        Column("subscription", "int", "whom it is about (consumer_samples.subscription); 0: nobody who subscribed"),
        Column("client", "text", "the client's name"),
        Column("filter", "text", "the topic filter"),
        Column("listener", "text", "where it came in"),
        Column("policy", "text", "whose rule decided; empty for pressure on a pool and for flap control"),
        Column("rule", "int", "the rule's number, from 1; 0 without a policy"),
        Column("rule_name", "text", "the rule's name, if it has one"),
        Column("kind", "text", "fire, or clear when it is over"),
        Column("action", "text", "what was done"),
        Column("reason", "text", "the meter that led to it"),
        Column("cause", "text", "where the trouble lies; empty for a clear"),
        Column("enforced", "flag", "false: a dry run"),
        Column("window_ms", "float", "for how long the condition had to hold"),
        Column("held_ms", "float", "fire: how long it held; clear: how long the rule was active"),
        Column("meter", "text", "the leading reading: its meter"),
        Column("value", "float", "its value"),
        Column("op", "text", "how they compare"),
        Column("threshold", "float", "its threshold"),
        Column("lag_records", "int", "records that waited"),
        Column("lag_bytes", "int", "and their bytes"),
        Column("lag_age_ms", "float", "how long the oldest of them had waited"),
        Column("drain_rate", "float", "bytes a second it took"),
        Column("offered_rate", "float", "bytes a second offered to it"),
        Column("blocked_ms", "float", "for how long its socket had taken no bytes"),
        Column("credit_exhausted_ms", "float", "for how long its window had been full"),
        Column("ack_age_ms", "float", "how long ago the oldest record in flight was sent, beyond its patience"),
        Column("in_flight", "int", "records sent and not acknowledged"),
        Column("held_bytes", "int", "its share of what was held"),
        Column("text", "text", "the sentence for people"),
    ),
)  # fmt: skip

_OF_TRIALS = {"policy": "the trial's name", "number": "its number, counted over all trials"}
TRIAL_VERDICTS = LakeTable(
    "trial_verdicts",
    "one row per verdict of a trial, none of which is enforced",
    VERDICTS.key,
    tuple(
        column._replace(about=_OF_TRIALS.get(column.name, column.about)) for column in VERDICTS.columns
    ),
)  # fmt: skip

TOPIC_SAMPLES = LakeTable(
    "topic_samples",
    "one row per lane (a topic filter in one wire form) and second while somebody lags there, coarser otherwise",
    ("run", "lane", "seq"),
    (
        _RUN, _BROKER, _TIME,
        Column("lane", "text", "the lane's name, unique within the run"),
        _SEQ,
        Column("filter", "text", "the topic filter"),
        Column("pool", "text", "the pool it belongs to"),
        Column("offered_records", "int", "records appended since the lane began"),
        Column("offered_bytes", "int", "and their bytes"),
        Column("consumers", "int", "who read it"),
        Column("lagging", "int", "of them, those for whom records wait"),
        Column("slow", "int", "of them, those marked slow"),
        Column("gating", "int", "of them, those publishers wait for"),
        Column("resident_bytes", "int", "held in memory"),
        Column("spilled_bytes", "int", "held on disk"),
        Column("stalled_ms", "float", "for how long publishers were held back for it since the lane began"),
    ),
)  # fmt: skip

BROKER_SAMPLES = LakeTable(
    "broker_samples",
    "one row per second",
    ("run", "seq"),
    (
        _RUN, _BROKER, _TIME, _SEQ,
        Column("sessions", "int", "clients, also those that are away"),
        Column("subscriptions", "int", "consumers"),
        Column("watched", "int", "of them, those the governor looks at"),
        Column("slow", "int", "of them, those marked slow"),
        Column("published_records", "int", "taken from publishers since the start"),
        Column("published_bytes", "int", "and their bytes"),
        Column("delivered_records", "int", "given to consumers since the start"),
        Column("delivered_bytes", "int", "and their bytes"),
        Column("gap_records", "int", "left out for consumers since the start"),
        Column("turns", "int", "turns of the loop since the row before"),
        Column("delivery_p50_ms", "float", "from the first byte read in a turn to the last one written: the median"),
        Column("delivery_p99_ms", "float", "the same, 99 % of the turns"),
        Column("delivery_max_ms", "float", "the same, the longest"),
        Column("loop_late_ms", "float", "by how much sweeps came too late since the start"),
        Column("memory_bytes", "int", "held in memory, all pools"),
        Column("memory_limit_bytes", "int", "what they may hold in memory"),
        Column("disk_bytes", "int", "held on disk, all pools"),
        Column("disk_limit_bytes", "int", "what they may hold on disk"),
        Column("rss_bytes", "int", "the process's resident memory"),
        Column("dropped_rows", "int", "rows of this lake that could not be written since the start"),
    ),
)  # fmt: skip

CONFIGS = LakeTable(
    "configs",
    "one row at the start and after each reload: what was in force",
    ("run", "seq"),
    (
        _RUN, _BROKER, _TIME, _SEQ,
        Column("version", "text", "Headway's version"),
        Column("sweep_ms", "float", "time between two looks of the governor"),
        Column("late_after_ms", "float", "a sweep that comes this much too late is the broker's own fault"),
        Column("memory_limit_bytes", "int", "the global pool's memory"),
        Column("disk_limit_bytes", "int", "the global pool's disk"),
        Column("client_share", "float", "what one client may hold of either"),
        Column("config", "text", 'JSON: {"policy": [...], "topic": [...], "trial": [...]} as the config file has them'),
    ),
)  # fmt: skip

TABLES: dict[str, LakeTable] = {
    table.name: table for table in (CONSUMER_SAMPLES, VERDICTS, TRIAL_VERDICTS, TOPIC_SAMPLES, BROKER_SAMPLES, CONFIGS)
}
