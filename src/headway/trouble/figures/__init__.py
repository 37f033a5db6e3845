"""Figures of a run: stamps on its records, delays, tallies, and its own lateness."""
