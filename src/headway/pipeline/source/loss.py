"""Lost records: they end the query that was to have them, or are a line in the log."""

from __future__ import annotations

import logging

from headway.pipeline.broker.errors import DataLoss
from headway.pipeline.source.options import Options

DELETED = "they are older than the broker keeps them"
LOST = "the broker's records end before them; it has lost some, or is not the one it was"

log = logging.getLogger("headway")


def lose(options: Options, first: int, stop: int, why: str) -> None:
    """Reports the offsets from ``first`` to before ``stop`` as lost. Raises DataLoss, unless the query is to go on
    behind them."""
    _go_on(options, f"offsets {first} to {stop - 1} of {options.topic} are lost to this query: {why}", stop)


def go_back(options: Options, at: int, end: int) -> None:
    """Reports that the query is ``at`` an offset beyond the ``end`` of all there is. Raises DataLoss, unless it is to
    go back."""
    text = f"this query is at offset {at} of {options.topic}, and the broker's records end at {end}"
    _go_on(options, f"{text}: it has lost some, or is not the one it was", end)


def miss(options: Options, why: str) -> None:
    """Reports that keys of a state are missing. Raises DataLoss, unless the query is to go on without them."""
    text = f"the state of {options.topic} is not whole: {why}"
    if options.strict:
        raise DataLoss(f"{text}; option failOnDataLoss=false reads what there is")
    log.warning("%s; it goes on without them", text)


def _go_on(options: Options, text: str, at: int) -> None:
    if options.strict:
        raise DataLoss(f"{text}; option failOnDataLoss=false goes on at {at}")
    log.warning("%s; it goes on at %d", text, at)
