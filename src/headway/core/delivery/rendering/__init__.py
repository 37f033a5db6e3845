"""Rendering: records that cannot go from the lane to the outlet as they are."""

from headway.core.delivery.rendering.backfilling import write_frame
from headway.core.delivery.rendering.batch import Losses
from headway.core.delivery.rendering.omission import drop_reason
from headway.core.delivery.rendering.redelivery import delivery_record, replay
from headway.core.delivery.rendering.rendering import COPIES_A_STEP, render

__all__ = [
    "COPIES_A_STEP", "delivery_record", "drop_reason", "Losses", "render", "replay", "write_frame",
]
