"""Everything on disk: the spill, the journal, staged parts, the telemetry lake; and records as Arrow."""
