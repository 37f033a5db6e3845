"""The help text of each metric, by its name without the prefix ``headway_``. Counters are shown as NAME_total."""

HELP = {
    # The broker
    "connections": "Open connections",
    "sessions": "Sessions, connected or kept while their client is away",
    "subscriptions": "Subscriptions of all sessions",
    "lanes": "Encoded streams of records; subscriptions of one filter, selector and protocol share a stream",
    "lagging_consumers": "Consumers that are behind, or that a policy rule is active on",
    "retained_records": "Retained records",
    "memory_rss_bytes": "Resident memory of the broker process",
    "memory_peak_bytes": "Highest resident memory of the broker process since its start",
    "longest_turn_seconds": "Longest time that one flush to consumers took, since the start",
    "published_records": "Records accepted from publishers",
    "published_bytes": "Bytes of the records accepted from publishers",
    "delivered_records": "Records sent to consumers",
    "delivered_bytes": "Bytes of the records sent to consumers",
    "verdicts": "Decisions about slow consumers, enforced or not",
    "connections_refused": "Connections refused: a limit was reached, or the login was wrong",
    "protocol_errors": "Connections closed because the client broke its protocol",
    "connections_ended": "Connections that ended, by reason",
    "plugin_failures": "Exceptions raised by a plugged-in meter or action",
    # The event loop
    "loop_late_seconds": "Time by which the governor's sweeps came late; consumers are not judged for it",
    "loop_late_longest_seconds": "Longest time by which the event loop was late, since the start",
    "loop_late_lately_seconds": "Longest time by which the event loop was late, in the last minute or two",
    "loop_late_by_cause_seconds": "Time by which the event loop was late, by what it was busy with",
    "loop_lateness_seconds": "Lateness of the event loop, measured fifty times a second",
    # All consumers, all queues
    "consumers": "Consumers by state: ok, behind, slow, conflating, discarding, offline, away",
    "lag_records": "Records that wait for consumers, summed over all consumers",
    "lag_bytes": "Bytes that wait for consumers, summed over all consumers",
    "lag_bytes_max": "Bytes that wait for the consumer with the most lag",
    "gap_records": "Records that consumers skipped, by reason",
    "queues": "Queues",
    # Memory and disk
    "pool_bytes": "Bytes in use in a pool, by medium: memory, disk, clients (all they need besides records), states",
    "pool_limit_bytes": "Limit of a pool, by medium",
    # The journal
    "journal_commits": "Commits of the journal: groups of records written and synced together",
    "journal_failures": "Commits of the journal that failed",
    "journal_failing": "1 while the journal cannot be written, so that nothing durable is confirmed",
    "journal_waiting_bytes": "Bytes given to the journal and not yet known to be on disk",
    "journal_places": "Durable subscriptions and queues, whose positions the journal keeps",
    "journal_bytes": "Size on disk of a stream of the journal",
    # The telemetry lake
    "telemetry_written_rows": "Rows written to the telemetry lake",
    "telemetry_dropped_rows": "Rows of telemetry that could not be written",
    "telemetry_errors": "Failed writes to the telemetry lake",
    "telemetry_lake_bytes": "Size on disk of the telemetry lake",
    # Each of the consumers with the most lag
    "consumer_lag_records": "Records that wait for the consumer",
    "consumer_lag_bytes": "Bytes that wait for the consumer",
    "consumer_held_bytes": "Consumer's share of the bytes held for all consumers; the shares add up",
    "consumer_blocked_seconds": "Time for which the consumer's socket has taken nothing while records wait for it",
    "consumer_blocked_ms": "Deprecated: use headway_consumer_blocked_seconds",
    "consumer_slow": "1 while a policy rule holds the consumer to be slow",
    # Each of the longest queues
    "queue_records": "Records that wait in the queue",
    "queue_bytes": "Bytes that wait in the queue",
    "queue_unacknowledged": "Records delivered from the queue and not yet acknowledged",
    "queue_consumers": "Consumers of the queue",
    "queue_dropped_records": "Records that the queue dropped or dead-lettered, by reason",
}
