"""AMQP 0-9-1, and its forerunners 0-9 and 0-8 where they differ (codes.py)."""
