"""From verdicts and labels to scores."""
