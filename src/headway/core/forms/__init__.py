"""Forms of records that the broker makes itself: projections, deltas, and patches that are merged."""

from headway.core.forms.merging import merge_slice, merged_run
from headway.core.forms.shape import SHAPE_BYTES, Deltas, Shape

__all__ = ["Deltas", "merge_slice", "merged_run", "Shape", "SHAPE_BYTES"]
