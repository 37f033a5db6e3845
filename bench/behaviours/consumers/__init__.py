"""The set's consumers: their connections, links and feeds, and what is true of each."""
