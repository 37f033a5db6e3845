"""Files: the spill, the journal, staged parts, the telemetry lake; records as Arrow."""
