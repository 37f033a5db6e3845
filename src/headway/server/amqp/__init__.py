"""AMQP's side of a connection."""
