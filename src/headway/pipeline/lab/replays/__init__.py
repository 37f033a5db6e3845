"""Replays: recorded consumers are replayed under other policies."""
