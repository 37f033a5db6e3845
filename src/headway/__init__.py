"""Headway: a message broker whose reason to exist is the slow consumer."""

__version__ = "0.1.0"
