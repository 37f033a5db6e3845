"""Causes, from samples alone: the broker's questions for stretches in which no verdict was given.

The broker also asks the peer's TCP; the lake does not have that. So where a socket takes nothing, it may be the network
or an application that does not read: ``NOT_TOLD``.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from headway.core.base import Cause
from headway.core.policy import (
    AHEAD,
    BLOCKED_S,
    BURST_FACTOR,
    LATE_ACK_S,
    NO_CREDIT_S,
    ON_ITS_WAY_BYTES,
    PAUSES,
    STEADY_SHARE,
)

NOT_TOLD = "network_or_application"


def find_cause() -> Column:
    """Finds where the trouble lies in one sample: a ``Cause``, or NOT_TOLD."""
    drains, offered = F.col("drain_rate"), F.col("offered_rate")
    blocked_ms = F.col("blocked_ms")
    usual_ms = F.coalesce(F.col("usual_pause_ms"), F.lit(0.0))  # null in lakes of before
    exhausted_ms, in_flight = F.col("credit_exhausted_ms"), F.col("in_flight")
    on_its_way_ms = F.when(exhausted_ms > 0, usual_ms * PAUSES * in_flight).otherwise(
        F.when(drains > 0, F.lit(ON_ITS_WAY_BYTES * 1000) / drains).otherwise(0.0)
    )
    late = (F.col("ack_age_ms") >= F.greatest(F.lit(LATE_ACK_S * 1000), on_its_way_ms)) & (in_flight > 0)
    full_ms = F.greatest(F.lit(NO_CREDIT_S * 1000), usual_ms * PAUSES)
    no_credit = (exhausted_ms >= full_ms) | ((exhausted_ms > 0) & (drains <= 0))
    stands = blocked_ms >= F.greatest(F.lit(BLOCKED_S * 1000), usual_ms * PAUSES)
    steady = (drains > 0) & ~stands & (drains >= offered * STEADY_SHARE)
    ahead = drains > offered * AHEAD
    return (
        F.when(no_credit | late, F.lit(Cause.APPLICATION.value))
        .when(steady & ((F.col("offered_burst") > BURST_FACTOR) | ahead), Cause.PRODUCER_BURST.value)
        .when(steady, Cause.OVER_SUBSCRIPTION.value)
        .when(blocked_ms > 0, NOT_TOLD)
        .otherwise(Cause.APPLICATION.value)
    )
