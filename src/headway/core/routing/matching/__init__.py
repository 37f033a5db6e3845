"""Matching: the logs that a record goes to, by its topic, or by the exchange and the key that it was published with."""

from headway.core.routing.matching.bindings import (
    EXCHANGE_BYTES,
    KINDS,
    PREDECLARED,
    AmqTopic,
    Binding,
    Destination,
    Exchange,
    Exchanges,
    frozen,
)
from headway.core.routing.matching.router import (
    COPIES,
    DECODED_A_UNIT,
    RECORDS_A_UNIT,
    SEARCHED_A_UNIT,
    SLICES_PER_POOL,
    Befores,
    Route,
    Router,
    marked_parts,
    merges_of,
    part_of,
    put_work,
    records_before,
    selecting_work,
    slice_of,
    work_of,
    worked_out_parts,
)

__all__ = [
    "AmqTopic", "Befores", "Binding", "COPIES", "DECODED_A_UNIT", "Destination", "Exchange", "EXCHANGE_BYTES",
    "Exchanges", "frozen", "KINDS", "marked_parts", "merges_of", "part_of", "PREDECLARED", "put_work",
    "RECORDS_A_UNIT", "records_before", "Route", "Router", "SEARCHED_A_UNIT", "selecting_work", "slice_of",
    "SLICES_PER_POOL", "work_of", "worked_out_parts",
]
