"""The tour for data engineers."""
