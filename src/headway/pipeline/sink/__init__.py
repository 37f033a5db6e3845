"""Writing from Spark: ``format(\"headway\")`` as a sink; each row is published exactly once."""
