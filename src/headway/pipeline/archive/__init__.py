"""Recorded topics as a lake of plain Parquet: written, compacted, and read together with the live topic."""
