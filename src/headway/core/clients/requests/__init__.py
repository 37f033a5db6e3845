"""The parts of a request to subscribe: its filter, the records it accepts, its focus, its shape, and its memory."""

from headway.core.clients.requests.acceptance import acceptance_of, parse_filter
from headway.core.clients.requests.cost import check_room, cost
from headway.core.clients.requests.focusing import focus_of
from headway.core.clients.requests.shaping import shape_of

__all__ = ["acceptance_of", "check_room", "cost", "focus_of", "parse_filter", "shape_of"]
