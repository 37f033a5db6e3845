"""`headway top`: consumers as a list that is sorted, filtered and looked into; once, or live."""

from headway.cli.top.columns import SORTS
from headway.cli.top.drawing import draw
from headway.cli.top.picture import take
from headway.cli.top.view import View
from headway.cli.top.watch import watch

__all__ = ["draw", "SORTS", "take", "View", "watch"]
