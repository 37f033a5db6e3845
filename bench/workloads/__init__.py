"""Workloads: one measurement per file, with its sizes and the columns of its table."""
