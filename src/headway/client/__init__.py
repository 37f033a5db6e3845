"""Access to a running broker from outside."""
