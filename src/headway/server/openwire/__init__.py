"""OpenWire's side of a connection: clients of JMS."""

from headway.server.openwire.peer import OpenWirePeer as PEER

__all__ = ["PEER"]
