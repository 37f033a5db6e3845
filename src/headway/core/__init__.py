"""The engine: takes commands and ``now``, returns effects. No clock, randomness or I/O in here."""
