"""Requests to the broker's admin API, for reading and for writing; their errors, and the values of options."""
