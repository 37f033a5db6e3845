"""The asyncio server around the core: sockets, configuration, admin HTTP."""
