"""Workloads of protocols that are carried in something else: TLS, a WebSocket."""
