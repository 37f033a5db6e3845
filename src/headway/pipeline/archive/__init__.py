"""Recorded topics as an archive of plain Parquet: written, compacted, and read together with the live topic."""
