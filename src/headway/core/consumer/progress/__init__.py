"""How far a subscription is: what it counts, what it leaves out, and what it reads before its lane."""

from headway.core.consumer.progress.backfill import Backfill, BackfillSource
from headway.core.consumer.progress.counters import NO_VOLUME, Counters, Volume
from headway.core.consumer.progress.skip import NONE_LEFT_OUT, LeftOut, Predicate, Skip, rest_skipped
from headway.core.consumer.progress.view_age import ViewAge

__all__ = ["Backfill", "BackfillSource", "Counters", "LeftOut", "NO_VOLUME", "NONE_LEFT_OUT", "Predicate",
           "rest_skipped", "Skip", "ViewAge", "Volume"]
