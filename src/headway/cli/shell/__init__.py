"""For the shell around the command line: completion, and the man page."""
