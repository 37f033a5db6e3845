"""Views: queries over recorded topics that run on and on, and whose results are published to a keyed topic."""
