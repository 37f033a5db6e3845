"""The kinds of consumers in the set."""
