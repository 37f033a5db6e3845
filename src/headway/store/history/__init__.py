"""The history: verdicts and ends of connections in files that outlive the process, one JSON object a line."""
