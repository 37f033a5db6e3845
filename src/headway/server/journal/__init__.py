"""The journal at work: what is kept, in words; writing it; and making everything again at start."""
