"""Sessions of clients: how they begin and end."""

from headway.core.clients.sessions.admission import Admission
from headway.core.clients.sessions.ending import Ending

__all__ = [
    "Admission", "Ending",
]
