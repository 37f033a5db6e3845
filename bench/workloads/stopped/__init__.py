"""One subscriber stops reading."""
