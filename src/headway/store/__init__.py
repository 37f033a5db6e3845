"""Files: the spill."""
