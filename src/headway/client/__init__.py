"""What asks a broker from outside."""
