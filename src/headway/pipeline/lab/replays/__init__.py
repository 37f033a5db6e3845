"""Replays: recorded consumers go through their days once more, under another policy."""
