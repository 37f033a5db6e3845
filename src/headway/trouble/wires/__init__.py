"""A client's side of each protocol that the test bench speaks. No clock, and no I/O but the WebSocket's handshake."""
