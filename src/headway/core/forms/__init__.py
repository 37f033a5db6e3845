"""Forms of records that the broker makes itself: projections."""

from headway.core.forms.shape import SHAPE_BYTES, Shape

__all__ = ["Shape", "SHAPE_BYTES"]
