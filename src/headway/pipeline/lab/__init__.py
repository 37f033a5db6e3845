"""The policy lab: what other policies would have done with recorded traffic."""
