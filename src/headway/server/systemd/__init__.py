"""The service manager: what it hands over at the start, and what it is told (systemd's sd_notify and sd_listen_fds)."""

from headway.server.systemd.notify_socket import NotifySocket
from headway.server.systemd.passed_sockets import ADMIN, PassedSockets

__all__ = [
    "ADMIN", "NotifySocket", "PassedSockets",
]
