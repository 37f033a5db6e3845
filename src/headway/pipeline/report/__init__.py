"""The reports: one self-contained HTML file each."""
