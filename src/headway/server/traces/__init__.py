"""Spans for records of sampled traces: how each went on to its consumers, sent to a collector by a thread."""

from headway.server.traces.traces import Traces, open_traces

__all__ = ["open_traces", "Traces"]
