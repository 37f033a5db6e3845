"""Errors that end the bench, in one line each."""


class BenchError(Exception):
    """A mistake of the user, or a peer that did not behave: ``str()`` is one line for whoever runs the bench."""


class PeerFailed(BenchError):
    """A peer did not start, or died under the load. The others are still measured."""
