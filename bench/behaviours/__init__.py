"""A labelled set of consumers, and what policies make of them."""
