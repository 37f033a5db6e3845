"""The load: a process that publishes, one that receives, one whose sockets are never read; the same work for all."""
