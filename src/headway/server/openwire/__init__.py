"""OpenWire's side of a connection: clients of JMS."""

from headway.server.openwire.peer import OpenWirePeer

PEER = OpenWirePeer

__all__ = ["PEER", "OpenWirePeer"]
